"""A rollback puts seeds back as they were, and brings back none that failed."""

from __future__ import annotations

import copy
import gc
import weakref
from dataclasses import replace

import torch

from esper.leyline import contracts as pb
from tests.seed_kit import APPLIED, SETTINGS, Bench, Op, batch, equal


def rolled_back(bench: Bench, kept: object, weights: dict[str, torch.Tensor]) -> None:
    bench.executor.restore(kept, bench.step + 1)
    bench.host.load_state_dict(weights)


def test_parameters_alpha_and_statistics_are_those_of_the_snapshot() -> None:
    bench = Bench()
    bench.raise_seed("BLENDING")
    seed, x = bench.executor.seeds["s0"], batch(99)[0]
    kept, weights = bench.executor.snapshot(), copy.deepcopy(bench.host.state_dict())
    before, fits = bench.host(x).detach(), seed.meter.fits.total
    bench.do(Op.SEED_OP_SET_ALPHA_TARGET, alpha=0.3, steps=2)
    bench.train(7)

    rolled_back(bench, kept, weights)

    assert torch.equal(bench.host(x), before)
    assert float(seed.alpha) == 1.0
    assert seed.meter.fits.total == fits
    assert seed.history[-1].detail == "rolled back"


def test_a_schedule_goes_on_from_where_the_snapshot_found_it() -> None:
    bench = Bench()
    bench.raise_seed("BLENDING")
    seed = bench.executor.seeds["s0"]
    bench.do(Op.SEED_OP_SET_ALPHA_TARGET, alpha=0.2, steps=8)
    bench.train(3)
    kept, weights = bench.executor.snapshot(), copy.deepcopy(bench.host.state_dict())
    expected = []
    for _ in range(6):
        bench.train(1)
        expected.append(float(seed.alpha))

    rolled_back(bench, kept, weights)

    found = []
    for _ in range(6):
        bench.train(1)
        found.append(float(seed.alpha))
    assert found == expected and len(set(expected)) > 3


def test_a_fossil_made_since_becomes_a_seed_again() -> None:
    bench = Bench()
    bench.raise_seed("PROBATIONARY")
    bench.train(40)
    kept, weights = bench.executor.snapshot(), copy.deepcopy(bench.host.state_dict())
    before = bench.host(batch(99)[0]).detach()
    assert bench.do(Op.SEED_OP_FOSSILIZE).status == APPLIED
    bench.optimizer = torch.optim.SGD(bench.host.parameters(), lr=0.1)
    bench.train(3)

    rolled_back(bench, kept, weights)

    assert bench.stage() == "PROBATIONARY"
    assert torch.equal(bench.host(batch(99)[0]), before)
    assert set(bench.host.state_dict()) == set(weights)
    assert bench.do(Op.SEED_OP_FOSSILIZE).status == APPLIED


def test_a_seed_germinated_since_is_gone_and_one_culled_since_stays_culled() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    kept, weights = bench.executor.snapshot(), copy.deepcopy(bench.host.state_dict())
    bench.do(Op.SEED_OP_CULL)
    bench.germinate("head", "lora", "s1")

    rolled_back(bench, kept, weights)

    assert (bench.stage("s0"), bench.stage("s1")) == ("EMBARGOED", "DORMANT")
    assert list(bench.executor.seeds) == ["s0"]
    assert bench.germinate("head", "lora", "s1").status == APPLIED


def test_a_snapshot_can_be_restored_twice_with_the_same_outcome() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    kept, weights = bench.executor.snapshot(), copy.deepcopy(bench.host.state_dict())
    results = []
    for _ in range(2):
        rolled_back(bench, kept, weights)
        bench.seed_optimizers.clear()
        bench.optimizer = torch.optim.SGD(bench.host.parameters(), lr=0.1)
        bench.step = 50
        bench.train(5)
        module = bench.executor.seeds["s0"].module
        assert module is not None
        results.append({name: tensor.clone() for name, tensor in module.state_dict().items()})

    assert equal(results[0], results[1])
    assert bench.executor.states()[0].stage == pb.SeedLifecycleStage.SEED_STAGE_TRAINING


def test_a_seed_that_was_a_fossil_for_long_may_use_its_own_tensors_again() -> None:
    bench = Bench(settings=replace(SETTINGS, walk_every=2))
    bench.raise_seed("PROBATIONARY")
    bench.train(40)
    kept, weights = bench.executor.snapshot(), copy.deepcopy(bench.host.state_dict())
    assert bench.do(Op.SEED_OP_FOSSILIZE).status == APPLIED
    assert bench.germinate("head", "lora", "s1").status == APPLIED
    bench.train(3)  # with a seed about, the host's tensors are looked at anew
    rolled_back(bench, kept, weights)

    bench.train(1)

    seed = bench.executor.seeds["s0"]
    assert (seed.violation, seed.violations) == ("", 0)
    assert list(bench.executor.requests()) == []


def test_a_fossil_that_was_terminated_since_becomes_a_seed_again() -> None:
    bench = Bench()
    bench.raise_seed("PROBATIONARY")
    bench.train(40)
    kept, weights = bench.executor.snapshot(), copy.deepcopy(bench.host.state_dict())
    before = bench.host(batch(99)[0]).detach()
    assert bench.do(Op.SEED_OP_FOSSILIZE).status == APPLIED
    assert bench.do(Op.SEED_OP_TERMINATE).status == APPLIED

    rolled_back(bench, kept, weights)

    assert (bench.stage(), set(bench.host.state_dict())) == ("PROBATIONARY", set(weights))
    assert torch.equal(bench.host(batch(99)[0]), before)


def test_one_that_germinated_since_and_was_terminated_leaves_the_host() -> None:
    bench = Bench()
    kept, weights = bench.executor.snapshot(), copy.deepcopy(bench.host.state_dict())
    bench.raise_seed("PROBATIONARY")
    bench.train(40)
    assert bench.do(Op.SEED_OP_FOSSILIZE).status == APPLIED
    assert bench.do(Op.SEED_OP_TERMINATE).status == APPLIED

    rolled_back(bench, kept, weights)

    assert (bench.stage(), set(bench.host.state_dict())) == ("DORMANT", set(weights))


def test_a_fossil_that_a_rollback_takes_out_is_freed() -> None:
    bench = Bench()
    kept, weights = bench.executor.snapshot(), copy.deepcopy(bench.host.state_dict())
    bench.raise_seed("PROBATIONARY")
    bench.train(40)
    module = weakref.ref(bench.executor.seeds["s0"].module)
    assert bench.do(Op.SEED_OP_FOSSILIZE).status == APPLIED
    assert bench.germinate("head", "lora", "s1").status == APPLIED  # the host is looked at with the fossil in it

    rolled_back(bench, kept, weights)
    bench.optimizer = torch.optim.SGD(bench.host.parameters(), lr=0.1)
    gc.collect()

    assert module() is None


def test_a_fossil_of_then_stays_and_one_that_failed_and_was_terminated_since_is_not_brought_back() -> None:
    bench = Bench(settings=replace(SETTINGS, embargo_epochs=0))
    bench.raise_seed("PROBATIONARY")
    bench.train(40)
    assert bench.do(Op.SEED_OP_FOSSILIZE).status == APPLIED
    assert bench.germinate("head", "lora", "s1").status == APPLIED
    kept, weights = bench.executor.snapshot(), copy.deepcopy(bench.host.state_dict())
    for operation in (Op.SEED_OP_CULL, Op.SEED_OP_RESET, Op.SEED_OP_TERMINATE):
        assert bench.do(operation, "s1").status == APPLIED
    assert bench.do(Op.SEED_OP_TERMINATE).status == APPLIED

    rolled_back(bench, kept, weights)

    assert (bench.stage(), bench.stage("s1")) == ("FOSSILIZED", "TERMINATED")
