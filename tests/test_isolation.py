"""A seed reaches only its own parameters, and the walk says so where it does not."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from esper.kasmina.isolation import stray_leaves
from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from tests.seed_kit import APPLIED, FAILED, Bench, Op, Reason


class Meddler(nn.Module):
    """Zero at first, but its graph holds the host's weight."""

    def __init__(self, host: nn.Module) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.zeros(()))
        self.hold = [next(host.parameters())]

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.own * h * self.hold[0].sum()


class LateMeddler(Meddler):
    """Behaves until it trains."""

    armed = False

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return super().forward(x, h) if self.armed else self.own * h


class Drawer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.own * torch.rand_like(h)


class Raiser(Drawer):
    raises = False

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        if self.raises:
            raise ValueError("out of luck")
        return self.own * h


class Hesitant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.full((), 0.5))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.own * h


def blueprint(kind: type[nn.Module]) -> Mapping[str, Blueprint]:
    def build(module: nn.Module, i: torch.Size, o: torch.Size, parameters: Mapping[str, float]) -> nn.Module:
        return kind(module) if issubclass(kind, Meddler) else kind()

    return {**BLUEPRINTS, "odd": Blueprint("odd", (), build, kind.__name__)}


def test_the_walk_counts_leaves_that_are_not_the_seeds_own() -> None:
    own, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))

    assert stray_leaves((own * 2).relu(), [own]) == 0
    assert stray_leaves((own * other).relu() + other, [own]) == 1
    assert stray_leaves(torch.ones(2), [own]) == 0


def test_a_blueprint_that_reaches_into_the_host_fails_g0() -> None:
    bench = Bench(blueprints=blueprint(Meddler))
    bench.train(1)

    outcome = bench.germinate(blueprint="odd")

    assert (outcome.status, outcome.reason) == (FAILED, Reason.REASON_GATE_FAILED)
    assert outcome.detail == "stray_leaves is 1, expected 0"
    assert bench.stage() == "DORMANT"


def test_a_blueprint_that_draws_from_the_global_generator_fails_g0() -> None:
    bench = Bench(blueprints=blueprint(Drawer))
    bench.train(1)
    state = torch.get_rng_state()

    outcome = bench.germinate(blueprint="odd")

    assert outcome.detail == "draws is 1, expected 0"
    assert torch.equal(torch.get_rng_state(), state)


def test_a_blueprint_that_changes_the_output_at_once_fails_g0() -> None:
    bench = Bench(blueprints=blueprint(Hesitant))
    bench.train(1)

    outcome = bench.germinate(blueprint="odd")

    assert outcome.detail == "identity is 0.5, expected 0"


def test_a_seed_that_turns_on_the_host_is_culled_after_three_violations() -> None:
    bench = Bench(blueprints=blueprint(LateMeddler))
    bench.train(1)
    assert bench.germinate(blueprint="odd").status == APPLIED
    module = bench.executor.seeds["s0"].module
    assert isinstance(module, LateMeddler)
    module.armed = True
    bench.do(Op.SEED_OP_START_TRAINING)

    bench.train(4)
    requests = bench.executor.requests()
    outcome = bench.executor.request(requests[0], bench.step + 1, 0)

    assert [request.reason for request in requests] == [Reason.REASON_BREAKER_OPEN]
    assert (outcome.status, outcome.culled, bench.stage()) == (APPLIED, True, "EMBARGOED")
    assert not bench.executor.requests()


def test_a_blueprint_that_raises_is_left_out_and_asks_for_a_cull() -> None:
    bench = Bench(blueprints=blueprint(Raiser))
    bench.train(1)
    bench.germinate(blueprint="odd")
    bench.do(Op.SEED_OP_START_TRAINING)
    module = bench.executor.seeds["s0"].module
    assert isinstance(module, Raiser)
    module.raises = True

    bench.train(2)

    assert [request.detail for request in bench.executor.requests()] == ["ValueError: out of luck"]
