"""What attach() leaves as it was."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from esper.errors import SettingError
from tests.seed_kit import Op, batch, equal, new_host, optimizer_of
from tests.session_kit import backward, on_seed, order, own_optimizer, train, train_bare, unsteered


def four_sites() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)), nn.ReLU(inplace=True), nn.Linear(8, 3))


def gradients(host: nn.Module, number: int) -> dict[str, torch.Tensor]:
    host.zero_grad()
    backward(host, number)
    return {name: p.grad.clone() for name, p in host.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_four_dormant_slots_change_no_bit_of_twenty_steps(name: str) -> None:
    bare, host = four_sites(), four_sites()
    optimizers = [optimizer_of(name, list(each.parameters())) for each in (bare, host)]
    train_bare(bare, optimizers[0], 20)

    train(unsteered(host, optimizers[1], "0", "1", "2", "3"), host, 20)

    inputs, _ = batch(99)
    assert torch.equal(host(inputs), bare(inputs))
    assert equal(host.state_dict(), bare.state_dict())
    assert equal(gradients(host, 99), gradients(bare, 99))
    assert len(gradients(host, 99)) == 10


def test_a_training_seed_stays_beside_the_model() -> None:
    host, alone = new_host(), new_host()
    optimizer = optimizer_of("sgd", list(host.parameters()))
    train_bare(alone, optimizer_of("sgd", list(alone.parameters())), 20)
    run = unsteered(host, optimizer, "body", "head")
    train(run, host, 1)
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"), on_seed(Op.SEED_OP_START_TRAINING))

    train(run, host, 19)

    assert [name for name, _ in host.named_parameters()] == [name for name, _ in alone.named_parameters()]
    assert equal(host.state_dict(), alone.state_dict())
    assert [len(group["params"]) for group in optimizer.param_groups] == [4]
    moments = run.optimizers._seeds["s0"].torch.state
    assert {int(state["step"]) for state in moments.values()} == {19}  # and yet it learned


def test_an_averaged_copy_of_the_model_is_inert() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")
    train(run, host, 1)
    order(
        run,
        on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"),
        own_optimizer("s0", 0.05),
        on_seed(Op.SEED_OP_START_TRAINING),
    )
    train(run, host, 3)

    average = torch.optim.swa_utils.AveragedModel(host)
    copied = copy.deepcopy(host)
    parameters = [parameter.detach().clone() for _, parameter in run.executor.seeds["s0"].trainable()]
    plain = new_host()
    plain.load_state_dict(host.state_dict())
    inputs, _ = batch(99)
    found = gradients(copied, 99)

    assert torch.equal(copied(inputs), plain(inputs)) and torch.equal(average(inputs), plain(inputs))
    assert equal(found, gradients(plain, 99))
    assert all(parameter.grad is None for _, parameter in run.executor.seeds["s0"].trainable())
    assert all(
        torch.equal(now, then) for (_, now), then in zip(run.executor.seeds["s0"].trainable(), parameters, strict=True)
    )


def test_where_attach_fails_model_and_optimizer_are_left_alone(tmp_path: Path) -> None:
    host = new_host()
    optimizer = optimizer_of("sgd", list(host.parameters()))

    with pytest.raises(SettingError, match="checkpoints is 'unsteered'; expected a live run, or ESPER_KEYRING"):
        unsteered(host, optimizer, "body", checkpoints=tmp_path)

    assert [len(module._forward_hooks) for module in host.modules() if module._forward_hooks] == []
    assert [*optimizer._optimizer_step_post_hooks, *optimizer._optimizer_step_pre_hooks] == []
    train(unsteered(host, optimizer, "body"), host, 1)


def test_a_loop_is_attached_once_until_it_is_closed() -> None:
    host = new_host()
    optimizer = optimizer_of("sgd", list(host.parameters()))
    run = unsteered(host, optimizer, "body")

    with pytest.raises(SettingError, match=r"that of a session \(SGD\)'; expected one that no session has: close\(\)"):
        unsteered(host, optimizer, "body")

    run.close()
    train(unsteered(host, optimizer, "body"), host, 1)
