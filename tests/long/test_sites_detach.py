"""A closed run leaves a model that knows nothing of it, with the fossils in it."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from esper.kasmina.slots.slot import Fossil
from tests.seed_kit import Op, batch, new_host
from tests.session_kit import on_seed, order, train, train_bare
from tests.site_kit import attached, fossilize, hooks, start


@pytest.fixture(autouse=True)
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESPER_RUN", raising=False)


def test_without_fossils_the_model_is_as_it_was() -> None:
    host = new_host()
    before, tensors = copy.deepcopy(vars(host)).keys(), [id(parameter) for parameter in host.parameters()]
    run = attached(host, "body", "head")
    train(run, host, 1)
    start(run, host, "body", "mlp", "trains")
    start(run, host, "head", "lora", "blends")
    order(run, on_seed(Op.SEED_OP_START_GRAFTING, "blends"))
    train(run, host, 12)
    x, _ = batch(99)
    grown = host(x)

    run.close()

    bare = new_host()
    bare.load_state_dict(host.state_dict(), strict=True)
    assert list(hooks(host, run.optimizer)) == []
    assert vars(host).keys() == before and [id(parameter) for parameter in host.parameters()] == tensors
    assert torch.equal(host(x), bare(x)) and not torch.equal(host(x), grown)


def test_a_closed_run_holds_nothing_of_a_fossil_that_was_merged() -> None:
    host = new_host()
    run = attached(host, "body", seeds_per_site=2)
    train(run, host, 1)
    start(run, host, "body", "mlp", "stays_young")
    start(run, host, "body#2", "lora", "s0")
    fossilize(run, host, "s0")
    train(run, host, run.executor.settings.walk_every)  # the monitor of the other seed has looked for tensors again
    fossil = [weakref.ref(p) for name, p in host.named_parameters() if "seed_s0" in name]

    run.close()
    gc.collect()

    assert fossil and [each() for each in fossil] == [None] * len(fossil)
    assert run.step_number > 1  # the run is held, as by a script that reads its report


@pytest.mark.parametrize("site", ["body", "head"])
def test_a_lora_is_merged_into_the_weight(site: str) -> None:
    host = new_host()
    run = attached(host, site)
    train(run, host, 1)
    start(run, host, site, "lora", "s0")
    fossilize(run, host, "s0")
    x, _ = batch(99)
    grown = host(x).detach()

    run.close()

    bare = new_host()
    bare.load_state_dict(host.state_dict(), strict=True)
    assert list(hooks(host, run.optimizer)) == []
    torch.testing.assert_close(host(x), grown, rtol=0, atol=1e-5)
    assert torch.equal(bare(x), host(x))


def test_what_an_earlier_seed_kept_from_being_merged_is_merged_now() -> None:
    host = new_host()
    run = attached(host, "body", seeds_per_site=2)
    train(run, host, 1)
    start(run, host, "body", "mlp", "stays_young")
    start(run, host, "body#2", "lora", "s0")
    fossilize(run, host, "s0")
    x, _ = batch(99)
    grown = host(x).detach()
    assert any("seed_s0" in name for name in host.state_dict())

    run.close()

    assert host.state_dict().keys() == new_host().state_dict().keys()
    assert list(hooks(host, run.optimizer)) == []
    torch.testing.assert_close(host(x), grown, rtol=0, atol=1e-5)


SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]] = {
    "step": lambda o: lr_scheduler.StepLR(o, 1000),
    "in turn": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, total_iters=2), lr_scheduler.ExponentialLR(o, 0.9)], milestones=[1]
    ),
}


@pytest.mark.parametrize(
    ("kind", "followed"), [(None, False), *((kind, followed) for kind in SCHEDULES for followed in (True, False))]
)
def test_the_optimizer_forgets_what_was_merged_late(kind: str | None, followed: bool) -> None:
    host = new_host()
    optimizer = torch.optim.AdamW(host.parameters(), lr=1e-3)
    scheduler = None if kind is None else SCHEDULES[kind](optimizer)
    given = {"scheduler": scheduler} if followed else {}
    run = attached(host, "body", "head", seeds_per_site=2, optimizer=optimizer, **given)
    train(run, host, 1)
    start(run, host, "body", "mlp", "stays_young")
    start(run, host, "head", "mlp", "stays")
    start(run, host, "body#2", "lora", "leaves")
    for seed in ("leaves", "stays"):
        fossilize(run, host, seed)
    num_stepped = sum(len(group["params"]) for group in optimizer.param_groups)

    run.close()

    stepped = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert {*stepped} == {*host.parameters()} and len(stepped) < num_stepped
    assert optimizer.state.keys() <= {*stepped}
    assert all(group["params"] for group in optimizer.param_groups)
    twin = torch.optim.AdamW(
        [{"params": [p.detach().clone() for p in group["params"]]} for group in optimizer.param_groups]
    )
    twin.load_state_dict(optimizer.state_dict())
    torch.testing.assert_close(twin.state_dict(), optimizer.state_dict())
    train_bare(host, optimizer, 2)
    if scheduler is not None:
        scheduler.step()
        assert len(scheduler.get_last_lr()) == len(optimizer.param_groups)


def test_a_fossil_that_does_not_fold_stays_and_is_trained_and_copied_with_the_model() -> None:
    host = new_host()
    run = attached(host, "body")
    train(run, host, 1)
    start(run, host, "body", "mlp", "s0")
    fossilize(run, host, "s0")
    x, targets = batch(99)
    grown = host(x).detach()

    run.close()

    [left] = hooks(host, run.optimizer)
    assert isinstance(left, Fossil)
    assert torch.equal(host(x), grown)
    assert torch.equal(copy.deepcopy(host)(x), grown)
    torch.autograd.backward(nn.functional.cross_entropy(host(x), targets))
    assert all(gradient_of(parameter).any() for name, parameter in host.named_parameters() if "seed_s0" in name)


def gradient_of(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def test_a_run_may_be_closed_twice_and_when_training_failed() -> None:
    host = new_host()
    run = attached(host, "body")
    train(run, host, 2)

    with pytest.raises(ValueError, match="out of luck"), run:
        raise ValueError("out of luck")

    assert run.close() is run.close()
    assert list(hooks(host, run.optimizer)) == []
