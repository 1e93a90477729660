"""A seed reaches only its own parameters, and the walk says so where it does not."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from numpy.random import mtrand
from torch import Tensor, nn

from esper.kasmina.gates.evidence import Generators
from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from tests.rank_kit import Ranks
from tests.seed_kit import APPLIED, FAILED, Bench, Op, Reason, batch, equal

REACHES = "delta's graph reaches 1 leaves that are not the seed's own"
STOPPED = "aten.add_.Tensor would write to body.weight; a seed may write to its own tensors only"


class Meddler(nn.Module):
    """Zero at first, but its graph holds the host's weight."""

    def __init__(self, host: nn.Module) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.zeros(()))
        self.hold = [next(host.parameters())]

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.own * h * self.hold[0].sum()


class Late(Meddler):
    """Behaves until it is armed."""

    armed = False

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.meddle(x, h) if self.armed else self.own * h

    def meddle(self, x: Tensor, h: Tensor) -> Tensor:
        return super().forward(x, h)


class LateWriter(Late):
    """Adds one to the host's weight, in place."""

    def meddle(self, x: Tensor, h: Tensor) -> Tensor:
        with torch.no_grad():
            self.hold[0].add_(1.0)
        return self.own * h


class LateThief(Late):
    """Writes past the version counter."""

    def meddle(self, x: Tensor, h: Tensor) -> Tensor:
        self.hold[0].data.add_(1.0)
        return self.own * h


class ArmedWriter(LateWriter):
    armed = True


class ArmedThief(LateThief):
    armed = True


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


def test_a_blueprint_that_reaches_into_the_host_fails_g0() -> None:
    bench = Bench(blueprints=blueprint(Meddler))
    bench.train(1)

    outcome = bench.germinate(blueprint="odd")

    assert (outcome.status, outcome.reason) == (FAILED, Reason.REASON_GATE_FAILED)
    assert outcome.detail == f"stray_leaves is 1, expected 0; {REACHES}"
    assert bench.stage() == "DORMANT"


def test_a_blueprint_that_draws_from_the_global_generator_fails_g0() -> None:
    bench = Bench(blueprints=blueprint(Drawer))
    bench.train(1)
    state = torch.get_rng_state()

    outcome = bench.germinate(blueprint="odd")

    assert outcome.detail == "draws is 1, expected 0"
    assert torch.equal(torch.get_rng_state(), state)


@pytest.fixture(params=[np.random.MT19937, np.random.PCG64, np.random.Philox])
def numpys_generator(request: pytest.FixtureRequest) -> Iterator[None]:
    """The global one is of this kind."""
    before = mtrand.get_bit_generator()
    mtrand.set_bit_generator(request.param(1))
    yield
    mtrand.set_bit_generator(before)


@pytest.mark.usefixtures("numpys_generator")
def test_a_blueprint_that_draws_from_numpys_generator_fails_g0() -> None:
    def build(module: nn.Module, i: torch.Size, o: torch.Size, parameters: Mapping[str, float]) -> nn.Module:
        np.random.rand()
        return BLUEPRINTS["lora"].build(module, i, o, parameters)

    bench = Bench(blueprints={"odd": Blueprint("odd", (), build, "")})
    bench.train(1)
    before = str(np.random.get_state(legacy=False))

    outcome = bench.germinate(blueprint="odd")

    assert outcome.detail == "draws is 1, expected 0"
    assert str(np.random.get_state(legacy=False)) == before


def test_what_another_thread_draws_meanwhile_is_not_the_blueprints() -> None:
    draws = [threading.Thread(target=random.random)]

    def build(module: nn.Module, i: torch.Size, o: torch.Size, parameters: Mapping[str, float]) -> nn.Module:
        while draws:
            other = draws.pop()
            other.start()
            other.join()
        return BLUEPRINTS["lora"].build(module, i, o, parameters)

    bench = Bench(blueprints={"odd": Blueprint("odd", (), build, "")})
    bench.train(1)

    assert bench.germinate(blueprint="odd").status == APPLIED
    assert not draws


def test_a_seed_amid_whose_draws_another_thread_drew_on_one_rank_is_refused_by_all() -> None:
    others, lora = [threading.Thread(target=torch.rand, args=(1,))], BLUEPRINTS["lora"]

    def amid(module: nn.Module, i: torch.Size, o: torch.Size, parameters: Mapping[str, float]) -> nn.Module:
        while others and not torch.empty(0).is_meta:  # there it would be weighed
            other = others.pop()
            other.start()
            other.join()
        return lora.build(module, i, o, parameters)

    ranks, benches = Ranks(), [Bench(blueprints={"lora": each}) for each in (lora, replace(lora, builder=amid))]
    for rank, bench in enumerate(benches):
        bench.executor.kernels.collector.reduce = ranks.agree(rank)
        bench.host(batch(1)[0])

    first, second = (
        ranks.all([partial(bench.germinate, blueprint="lora", seed_id=name) for bench in benches]) for name in "ab"
    )

    assert not others
    assert [each.status for each in first + second] == [FAILED, FAILED, APPLIED, APPLIED]
    assert all("digest_gap" in each.detail for each in first)


@pytest.mark.usefixtures("numpys_generator")
def test_a_draw_of_what_numpy_has_in_store_is_seen() -> None:
    np.random.randn()  # makes two numbers, and keeps the second
    generators, before = Generators(nn.Linear(1, 1)), str(np.random.get_state(legacy=False))
    np.random.randn()

    assert generators.put_back()
    assert str(np.random.get_state(legacy=False)) == before


def test_a_blueprint_that_changes_the_output_at_once_fails_g0() -> None:
    bench = Bench(blueprints=blueprint(Hesitant))
    bench.train(1)

    outcome = bench.germinate(blueprint="odd")

    assert outcome.detail == "identity is 0.5, expected 0"


@pytest.mark.parametrize("kind", [ArmedWriter, ArmedThief])
def test_a_blueprint_that_writes_to_the_host_fails_g0_before_it_has_written(kind: type[Late]) -> None:
    bench = Bench(blueprints=blueprint(kind))
    bench.train(1)
    before = bench.host.body.weight.detach().clone()

    outcome = bench.germinate(blueprint="odd")

    assert (outcome.status, bench.stage()) == (FAILED, "DORMANT")
    assert outcome.detail.startswith("fault is 1") and outcome.detail.endswith(STOPPED)
    assert torch.equal(bench.host.body.weight, before)


def grown(kind: type[Late]) -> tuple[Bench, Late]:
    """A TRAINING seed that is three steps old and about to turn on the host, and past its close look."""
    bench = Bench(blueprints=blueprint(kind))
    bench.train(1)
    assert bench.germinate(blueprint="odd").status == APPLIED
    bench.do(Op.SEED_OP_START_TRAINING)
    bench.train(3)
    module = bench.executor.seeds["s0"].module
    assert isinstance(module, kind)
    module.armed = True
    return bench, module


def test_a_seed_that_reaches_for_the_host_is_caught_in_that_step_and_the_host_trains_to_the_same_bits() -> None:
    alone = Bench(sites=())
    alone.train(12)
    bench, _ = grown(Late)

    bench.train(1)
    at_once = (bench.executor.seeds["s0"].violations, bench.executor.seeds["s0"].violation)
    bench.train(7)

    assert at_once == (1, REACHES)
    assert equal(bench.host.state_dict(), alone.host.state_dict())


def test_a_seed_that_writes_to_the_host_is_caught_in_that_step_and_writes_no_second_time() -> None:
    bench, _ = grown(LateWriter)
    bench.optimizer.param_groups[0]["lr"] = 0.0
    before = bench.host.body.weight.detach().clone()

    bench.train(1)  # its backward would raise over the moved counter
    at_once = (bench.executor.seeds["s0"].violations, bench.executor.seeds["s0"].violation)
    bench.train(5)

    assert at_once == (1, "the seed wrote to body.weight in place")
    assert bench.executor.seeds["s0"].violation == STOPPED
    assert torch.equal(bench.host.body.weight, before + 1.0)


def test_a_write_past_the_version_counter_is_stopped_at_the_next_close_look() -> None:
    bench, _ = grown(LateThief)

    bench.train(60)

    assert bench.executor.seeds["s0"].violation == STOPPED
    assert bench.executor.requests()


@pytest.mark.parametrize("kind", [Late, LateWriter])
def test_three_violations_quarantine_the_seed_save_what_can_be_saved_and_training_goes_on(kind: type[Late]) -> None:
    bench, _ = grown(kind)
    saved: list[str] = []
    bench.executor.in_emergency = saved.append

    found = []
    for _ in range(4):
        bench.train(1)
        found.append((bench.executor.seeds["s0"].violations, len(bench.executor.requests()), len(saved)))
    (request,) = bench.executor.requests()
    outcome = bench.executor.request(request, bench.step + 1, 0)
    bench.train(3)

    assert found == [(1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 1, 1)]  # looked after before the step that follows
    assert saved == [f"s0: {request.detail}"]
    assert request.reason == Reason.REASON_BREAKER_OPEN
    assert (outcome.status, outcome.culled, bench.stage()) == (APPLIED, True, "EMBARGOED")
    assert (bench.executor.requests(), len(saved)) == ([], 1)


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
