"""A fossil trains where the host trains, and not where it does not, from the first forward on."""

from __future__ import annotations

import pytest

from tests.seed_kit import APPLIED, Bench, Op


@pytest.mark.parametrize("trains", [True, False])
def test_a_fossil_takes_the_mode_of_its_site_at_once(trains: bool) -> None:
    bench = Bench()
    bench.raise_seed("PROBATIONARY")
    bench.train(40)
    seed = bench.executor.seeds["s0"]
    assert seed.module is not None
    seed.module.train(not trains)  # as the last call left it: an evaluation, or a step before one
    bench.host.train(trains)

    assert bench.do(Op.SEED_OP_FOSSILIZE).status == APPLIED

    fossil = [name for name, _ in bench.host.named_modules() if "seed_s0" in name]
    assert fossil and {bench.host.get_submodule(name).training for name in fossil} == {trains}


def test_a_fossil_of_a_seed_that_was_measured_last_trains() -> None:
    bench = Bench()
    bench.raise_seed("PROBATIONARY")
    bench.train(40)
    bench.host.eval()
    bench.host(bench.host.body.weight.new_zeros(2, 8))
    bench.host.train()

    assert bench.do(Op.SEED_OP_FOSSILIZE).status == APPLIED

    assert all(each.training for each in bench.host.modules())
