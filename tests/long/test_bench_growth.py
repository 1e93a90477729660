"""Arms of the comparison of growth train on equal batches, and each changes its model as its name says."""

from __future__ import annotations

import pytest
import torch

from esper.bench.work.growth.grafted import Grafted
from esper.bench.work.growth.growers import Frozen, Plain, final_size, host_only, joined, same_from_start
from esper.bench.work.growth.growing import OURS, REFERENCE, figures, trained
from esper.bench.work.growth.tasks import TASKS, Examples, size_of

torch.set_num_threads(1)
STEPS, GRAFT_AT = 120, 30


@pytest.fixture(scope="module")
def digits() -> Examples:
    return Examples.of(TASKS["digits"])


def test_no_example_is_in_two_parts_and_train_is_standardised(digits: Examples) -> None:
    parts = [digits.train, digits.held_out, digits.test]

    assert sum(len(part[1]) for part in parts) == 1_797
    assert digits.train[0].mean(0).abs().max() < 1e-5


def test_a_batch_is_a_function_of_seed_and_step(digits: Examples) -> None:
    assert all(torch.equal(one, other) for one, other in zip(digits.batch(1, 2), digits.batch(1, 2), strict=True))
    assert not torch.equal(digits.batch(1, 2)[0], digits.batch(2, 2)[0])


def test_the_final_size_has_the_parameters_of_host_and_seed_within_a_unit(digits: Examples) -> None:
    grown = size_of(joined(digits, 0))

    assert abs(final_size(digits, 0, GRAFT_AT).num_parameters - grown) <= 64 + 1 + 10


def test_what_is_joined_is_the_host_until_it_has_learned(digits: Examples) -> None:
    inputs = digits.test[0]

    assert torch.equal(joined(digits, 3)(inputs), digits.host(3)(inputs))


def test_a_frozen_host_moves_until_the_change_and_its_adapter_after_it(digits: Examples) -> None:
    arm = Frozen(digits, 0, GRAFT_AT)

    def advanced(first: int, last: int) -> dict[str, bool]:
        before = {name: each.detach().clone() for name, each in arm.model.named_parameters()}
        for step in range(first, last):
            arm.at(step)
            arm.step(*digits.batch(0, step))
        return {name: not torch.equal(each, before[name]) for name, each in arm.model.named_parameters()}

    early, late = advanced(1, GRAFT_AT), advanced(GRAFT_AT, 2 * GRAFT_AT)

    assert {name for name, moved in early.items() if moved} == {n for n in early if "seed" not in n}
    assert {name for name, moved in late.items() if moved} == {n for n in late if "seed" in n}


def test_a_seed_that_a_run_grew_stays_in_the_model_with_its_parameters(digits: Examples) -> None:
    arms = list[Plain]()

    def grafted(data: Examples, seed: int, graft_at: int) -> Plain:
        arms.append(Grafted(data, seed, graft_at, STEPS))
        return arms[-1]

    found = trained(grafted, digits, 0, STEPS)

    assert found.is_fossil
    assert found.parameters == size_of(joined(digits, 0)) == size_of(arms[0].model)
    assert found.final > trained(host_only, digits, 0, STEPS).final


def test_flops_are_six_a_parameter_and_example(digits: Examples) -> None:
    found = trained(same_from_start, digits, 0, 20)

    assert found.flops == 20 * 32 * 6 * size_of(joined(digits, 0))


def test_more_accuracy_and_more_speed_are_no_slow_down(digits: Examples) -> None:
    once = [trained(host_only, digits, 0, 20)]

    found = list(figures({REFERENCE: once, OURS: once}, "digits"))

    better_higher = {figure.stat for figure in found if figure.higher}
    assert better_higher == {"accuracy", "accuracy over the training", "rate", "seeds that stayed"}
