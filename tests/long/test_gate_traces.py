"""G0 and G5 see what a seed's code leaves behind: hooks on the host, optimizer state, memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from esper.kasmina.gates.evidence import num_differing
from esper.kasmina.isolation.hooks import HookCensus, NewHooks
from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from esper.leyline.lifecycle import DORMANT
from tests.seed_kit import APPLIED, FAILED, SETTINGS, Bench, Op, batch, new_host
from tests.site_kit import OPEN, Plot


def eavesdrop(module: nn.Module, *_: Any) -> None:
    """A hook that does nothing, as a foreign one might."""


def blueprint(builder: Any) -> Mapping[str, Blueprint]:
    return {"foreign": Blueprint("foreign", BLUEPRINTS["lora"].parameters, builder, "")}


class Plain(nn.Module):
    """A linear seed that begins at zero."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.up = nn.Linear(num_inputs, num_outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        y: Tensor = self.up(x)
        return y


class Latecomer(Plain):
    """Hangs a hook onto the host in its second forward: the first one is G0's."""

    def __init__(self, site: nn.Module) -> None:
        super().__init__(8, 6)
        self.sites, self.calls = [site], 0

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 2:
            self.sites[0].register_forward_hook(eavesdrop)
        return super().forward(x, h)


def hooking(site: nn.Module, *_: Any) -> nn.Module:
    site.register_forward_pre_hook(eavesdrop)
    site.register_full_backward_hook(eavesdrop)
    next(site.parameters()).register_hook(same)  # type: ignore[no-untyped-call]
    return Plain(8, 6)


def same(gradient: Tensor) -> Tensor:
    return gradient


def culled_and_due(bench: Bench) -> None:
    bench.do(Op.SEED_OP_CULL)
    bench.epoch = SETTINGS.embargo_epochs


def test_hooks_that_building_leaves_on_the_host_fail_g0_and_are_taken_off() -> None:
    bench = Bench(blueprints=blueprint(hooking))
    bench.train(1)
    expected = Bench(new_host(), sites=())
    expected.train(1)

    outcome = bench.germinate(blueprint="foreign")

    assert outcome.status == FAILED
    assert outcome.detail.startswith("hooks is ")
    assert not bench.host.body._forward_pre_hooks
    assert torch.equal(bench.host(batch(9)[0]), expected.host(batch(9)[0]))


def test_a_hook_that_came_later_holds_g5() -> None:
    bench = Bench(blueprints=blueprint(lambda site, *_: Latecomer(site)))
    bench.raise_seed("TRAINING", blueprint="foreign")
    culled_and_due(bench)

    outcome = bench.do(Op.SEED_OP_RESET)

    assert (outcome.status, outcome.detail) == (FAILED, "hooks is 1, expected 0")
    assert bench.stage() == "EMBARGOED"


def test_optimizer_state_that_stays_holds_g5() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    optimizers = dict(bench.seed_optimizers)
    culled_and_due(bench)
    bench.seed_optimizers |= optimizers

    outcome = bench.do(Op.SEED_OP_RESET)

    assert outcome.detail.startswith("optimizers is 1, expected 0; bytes_held is ")
    optimizers.clear()
    bench.seed_optimizers.clear()
    assert bench.do(Op.SEED_OP_RESET).status == APPLIED


def test_a_snapshot_does_not_keep_a_culled_seed_s_memory() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    kept = bench.executor.snapshot()
    culled_and_due(bench)

    outcome = bench.do(Op.SEED_OP_RESET)

    assert outcome.status == APPLIED, outcome.detail
    assert outcome.evidence["bytes_held"] == 0
    bench.executor.restore(kept, bench.step)
    assert bench.stage() == "DORMANT"


def test_without_optimizers_to_follow_g5_is_unmeasured() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    bench.executor._moves.collector.has_optimizer = None
    culled_and_due(bench)

    assert bench.do(Op.SEED_OP_RESET).detail == "optimizers is unmeasured"


class Told(nn.Module):
    """Its output is a mapping with a tuple in it, as of a model that gives its loss and its states too."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = self.body(x)
        return {"logits": y, "states": (y.argmax(1), None)}


def test_g5_compares_outputs_of_any_form() -> None:
    plot = Plot(Told(), batch(1)[0], ("body",))
    plot.train()
    plot.start("body")
    plot.train(2)
    plot.executor.follow_optimizers(lambda seed_id: False)
    plot.optimizers.clear()
    plot.do(Op.SEED_OP_CULL)
    plot.epoch = OPEN.embargo_epochs

    plot.do(Op.SEED_OP_RESET)

    assert plot.executor.reports()[0].stage == DORMANT


def test_what_differs_is_counted_over_all_tensors_and_nan_is_nan() -> None:
    nan = float("nan")
    one = {"a": torch.tensor([1.0, nan]), "b": (torch.tensor([1, 2]), None, "told")}
    other = {"a": torch.tensor([2.0, nan]), "b": (torch.tensor([1, 3]), None, "told")}

    assert num_differing(one, one) == 0
    assert num_differing(one, other) == 2


def test_a_tensor_of_another_form_or_without_a_counterpart_differs() -> None:
    one = [torch.ones(2)]

    assert num_differing(one, [*one, *one]) == 1
    assert num_differing([*one, *one], one) == 1
    assert num_differing(one, [torch.ones(3)]) == 1
    assert num_differing(one, [torch.ones(2, dtype=torch.float64)]) == 1


def test_a_census_counts_what_was_added_and_leaves_the_rest() -> None:
    host = new_host()
    host.body.register_forward_hook(eavesdrop)
    census, new = HookCensus(host), NewHooks(host)
    host.head.weight.register_hook(same)  # type: ignore[no-untyped-call]
    host.register_forward_hook(lambda *_: None)

    before, removed = census.added(), new.remove()

    assert (before, removed, census.added()) == (2, 2, 0)
    assert len(host.body._forward_hooks) == 1


def test_a_hook_on_a_shared_weight_is_one_hook_and_comes_off() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    host = nn.Sequential(first, second)
    census, new = HookCensus(host), NewHooks(host)
    first.weight.register_hook(same)  # type: ignore[no-untyped-call]

    assert (census.added(), new.remove(), new.remove()) == (1, 1, 0)


class Shifty(Plain):
    """Of another kind than it was, once it is grown."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__(8, 6)
        self.change, self.calls = change, 0

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        self.calls += 1
        delta = super().forward(x, h)
        return delta if self.calls == 1 else self.change(delta)


@pytest.mark.parametrize(
    ("change", "met"),
    [
        (lambda delta: delta[:, :1], "delta is torch.float32 (64, 1) on cpu"),
        (lambda delta: delta.to(torch.int64), "delta is torch.int64 (64, 6) on cpu"),
        (lambda delta: delta.to(torch.complex64), "delta is torch.complex64 (64, 6) on cpu"),
    ],
)
def test_a_delta_of_another_shape_or_kind_is_left_out_and_counted_for_g3(
    change: Callable[[Tensor], Tensor], met: str
) -> None:
    bench, alone = Bench(blueprints=blueprint(lambda *_: Shifty(change))), Bench(new_host(), sites=())
    bench.train(1)
    assert bench.germinate(blueprint="foreign").status == APPLIED
    bench.do(Op.SEED_OP_START_TRAINING)
    seed = bench.executor.seeds["s0"]

    bench.train(3)
    alone.train(4)

    (request,) = bench.executor.requests()
    assert request.detail == f"{met}; expected torch.float32 (64, 6) on cpu"
    assert bench.executor._moves.collector.interface(seed).mismatches == 1
    assert torch.equal(bench.host(batch(9)[0]), alone.host(batch(9)[0]))
