"""attach(own_host=True): the host's optimizer steps only where a lease covers the step, whatever drives it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from esper.errors import SettingError
from esper.tolaria.optimizers.optimizers import Optimizers
from tests.optimizer_kit import APPLIED, Host, Kind, Reason, command, governed, refusal, same
from tests.seed_kit import Op, new_host
from tests.session_kit import on_seed, order, train, unsteered

Build = Callable[[list[Any]], torch.optim.Optimizer]
HOSTS: dict[str, Build] = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.1),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=0.1),
    "foreach": lambda ps: torch.optim.AdamW(ps, lr=0.1, foreach=True),
    "fused": lambda ps: torch.optim.AdamW(ps, lr=0.1, fused=True),
    "fused sgd": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, fused=True),
    "adafactor": lambda ps: torch.optim.Adafactor(ps, lr=0.1),
    "groups": lambda ps: torch.optim.Adam([_group(ps[:2], lr=0.2), _group(ps[2:], betas=(0.5, 0.9))]),
}


def _group(parameters: list[Any], **options: Any) -> dict[str, Any]:
    return {"params": parameters, **options}


def lease(first: int, num_steps: int, clip: float = 0.0) -> Any:
    return command(Kind.OPTIMIZER_COMMAND_STEP, "host", expected_step=first, num_steps=num_steps, grad_clip_norm=clip)


def hosted(build: Build) -> tuple[Host, torch.optim.Optimizer, Optimizers]:
    host = Host()
    optimizer = build(list(host.parameters()))
    return host, optimizer, governed(host, optimizer, own_host=True)


def test_a_step_of_the_host_is_refused_where_it_steps_by_itself() -> None:
    host = Host()
    optimizers = governed(host, torch.optim.SGD(host.parameters(), lr=0.1))

    assert refusal(optimizers.apply(lease(1, 2), 1, {})) == (
        Reason.REASON_NOT_SUPPORTED,
        "the host steps by itself; leases govern it only with attach(own_host=True)",
    )


@pytest.mark.parametrize("kind", HOSTS)
def test_steps_outside_the_lease_leave_weights_and_moments_as_they_were(kind: str) -> None:
    host, optimizer, optimizers = hosted(HOSTS[kind])
    twin = Host()
    reference = HOSTS[kind](list(twin.parameters()))
    twin.load_state_dict(host.state_dict())

    moved = []
    for step in range(1, 9):
        if step == 3:
            assert optimizers.apply(lease(5, 2), step, {}).status == APPLIED
        before = host.weights()
        optimizers.begin_step(step)
        host.train_step(optimizer, step)
        moved.append(not same(before, host.weights()))
    for step in (1, 2, 5, 6):  # as if the others had never been
        twin.train_step(reference, step)

    assert moved == [True, True, False, False, True, True, False, False]
    assert same(host.weights(), twin.weights())
    assert [len(group["params"]) for group in optimizer.param_groups] == [
        len(group["params"]) for group in reference.param_groups
    ]


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler_and_a_scheduler_go_their_usual_way_through_steps_held_back(fused: bool) -> None:
    host, optimizer, optimizers = hosted(lambda ps: torch.optim.SGD(ps, lr=0.5, fused=fused))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    optimizers.apply(lease(3, 1), 1, {})

    moved = []
    for step in range(1, 5):
        before = host.weights()
        optimizers.begin_step(step)
        torch.autograd.backward(scaler.scale(host.loss(step)))
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scheduler.step()
        moved.append(not same(before, host.weights()))

    assert moved == [False, False, True, False]
    assert scaler.get_scale() == 16.0
    assert optimizer.param_groups[0]["lr"] == 0.5**5


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_lease_clips_the_hosts_gradients_once_they_are_unscaled(fused: bool, scaled: bool) -> None:
    host, optimizer, optimizers = hosted(lambda ps: torch.optim.SGD(ps, lr=1.0, fused=fused))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    optimizers.apply(lease(1, 0, clip=0.01), 1, {})
    before = [each.numpy().astype(np.float64) for each in host.weights()]
    gradients = [each.numpy().astype(np.float64) for each in torch.autograd.grad(host.loss(1), list(host.parameters()))]
    norm = math.sqrt(sum(float((each**2).sum()) for each in gradients))

    optimizers.begin_step(1)
    torch.autograd.backward(scaler.scale(host.loss(1)))
    scaler.step(optimizer)

    assert norm > 0.1
    for old, gradient, new in zip(before, gradients, host.weights(), strict=True):
        np.testing.assert_allclose(new.numpy(), old - gradient * 0.01 / norm, rtol=1e-4, atol=1e-6)


def test_a_closures_gradients_are_held_back_or_clipped_too() -> None:
    host, optimizer, optimizers = hosted(lambda ps: torch.optim.SGD(ps, lr=1.0))
    optimizers.apply(lease(2, 1, clip=0.01), 1, {})

    def closure() -> float:
        optimizer.zero_grad()
        loss = host.loss(1)
        torch.autograd.backward(loss)
        return float(loss.detach())

    lengths, losses, gradients = [], [], []
    for step in (1, 1, 2):
        before = host.weights()
        optimizers.begin_step(step)
        losses.append(optimizer.step(closure))
        gradients.append(
            float(torch.nn.utils.get_total_norm([p.grad for p in host.parameters() if p.grad is not None]))
        )
        changes = [new - old for new, old in zip(host.weights(), before, strict=True)]
        lengths.append(float(torch.nn.utils.get_total_norm(changes)))

    assert lengths == pytest.approx([0.0, 0.0, 0.01], rel=1e-4)
    assert gradients == pytest.approx([gradients[0], gradients[0], 0.01], rel=1e-4)  # each closure's own
    assert losses == [float(Host().loss(1).detach())] * 3


def test_an_optimizer_that_goes_past_its_groups_is_refused() -> None:
    with pytest.raises(SettingError, match="an LBFGS"):
        hosted(torch.optim.LBFGS)


def test_a_session_holds_the_host_back_while_its_seed_learns_and_lets_it_go_when_closed() -> None:
    host = new_host()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1, momentum=0.9)
    run = unsteered(host, optimizer, "body", own_host=True)
    train(run, host, 1)
    grow = on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp")
    order(run, grow, on_seed(Op.SEED_OP_START_TRAINING), lease(3, 1))
    seed = [parameter for _, parameter in run.executor.seeds["s0"].trainable()] if run.executor.seeds else []

    moved, learned = [], []
    for _ in range(3):
        before = [each.detach().clone() for each in host.parameters()]
        held = [each.detach().clone() for each in seed]
        train(run, host, 1)
        seed = [parameter for _, parameter in run.executor.seeds["s0"].trainable()]
        learned.append(not same(held, [each.detach() for each in seed]))
        moved.append(not same(before, list(host.parameters())))
    with warnings.catch_warnings():
        run.close()
    before = [each.detach().clone() for each in host.parameters()]
    host(torch.ones(1, 8)).sum().backward()
    optimizer.step()

    assert moved == [False, True, False]
    assert learned == [True, True, True]
    assert not same(before, list(host.parameters()))
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks


def test_a_lease_clips_sparse_gradients_by_the_norm_of_all_of_them() -> None:
    host = torch.nn.Sequential(torch.nn.Embedding(6, 3, sparse=True), torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(host.parameters(), lr=1.0)
    optimizers = governed(host, optimizer, own_host=True)
    optimizers.apply(lease(1, 1, clip=0.5), 1, {})
    before = [each.detach().clone() for each in host.parameters()]
    optimizers.begin_step(1)
    torch.autograd.backward(host(torch.tensor([1, 1, 4])).square().sum())
    gradients = [each.grad.to_dense().clone() for each in host.parameters() if each.grad is not None]

    optimizer.step()

    scale = 0.5 / math.sqrt(sum(float(each.square().sum()) for each in gradients))
    assert scale < 1
    for parameter, start, gradient in zip(host.parameters(), before, gradients, strict=True):
        torch.testing.assert_close(parameter.detach(), start - scale * gradient)
