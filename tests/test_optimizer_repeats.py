"""A command published again takes effect once, whatever it was told by: its expected step or its generation."""

from __future__ import annotations

from typing import Any

import pytest

from esper.leyline import contracts as pb
from esper.tolaria.optimizers.optimizers import Optimizers
from tests.optimizer_kit import APPLIED, Kind, Reason, Sprout, adjustment, alone, command, refusal

RENEWING = [
    Kind.OPTIMIZER_COMMAND_INITIALIZE_HOST,
    Kind.OPTIMIZER_COMMAND_CREATE_SEED,
    Kind.OPTIMIZER_COMMAND_RESET_STATE,
]


def with_seed() -> tuple[Optimizers, dict[str, Sprout]]:
    optimizers, seeds = alone(), {"s0": Sprout()}
    optimizers.create(seeds["s0"])
    return optimizers, seeds


def renewal(kind: pb.OptimizerCommandType, **fields: Any) -> pb.OptimizerCommand:
    resets = kind == Kind.OPTIMIZER_COMMAND_RESET_STATE
    values = {} if resets else {"hyperparameters": {"lr": 0.3}}
    name = "host" if kind == Kind.OPTIMIZER_COMMAND_INITIALIZE_HOST else "s0"
    return command(kind, name, **values, **fields)


@pytest.mark.parametrize("generation", [0, 1])
@pytest.mark.parametrize("kind", RENEWING)
def test_a_repeat_with_an_expected_step_is_answered_and_not_done_again(
    kind: pb.OptimizerCommandType, generation: int
) -> None:
    optimizers, seeds = with_seed()
    wish = renewal(kind, expected_step=100, optimizer_generation=generation)
    first = optimizers.apply(wish, 108, seeds)
    for step in (108, 109):
        seeds["s0"].has_gradients(step)
        optimizers.step(step)
    generations = optimizers.generations

    again = optimizers.apply(wish, 130, seeds)

    assert (first.status, "a repeat" in first.detail) == (APPLIED, False)
    assert (again.status, again.detail) == (APPLIED, "carried out before step 108; a repeat changes nothing")
    assert optimizers.generations == generations
    assert {int(state["step"]) for state in optimizers._seeds["s0"].torch.state.values()} == {2}


@pytest.mark.parametrize("kind", RENEWING)
def test_a_repeat_with_a_generation_is_refused(kind: pb.OptimizerCommandType) -> None:
    optimizers, seeds = with_seed()
    wish = renewal(kind, optimizer_generation=1)

    outcomes = [optimizers.apply(wish, 8, seeds), optimizers.apply(wish, 8, seeds)]

    assert outcomes[0].status == APPLIED
    reason, detail = refusal(outcomes[1])
    assert reason == Reason.REASON_WRONG_GENERATION
    assert "at generation 2; the command expects 1" in detail


@pytest.mark.parametrize(("expected_step", "lr"), [(90, 0.3), (100, 0.4)])
def test_one_that_expects_an_earlier_step_or_says_something_else_of_the_same_is_out_of_date(
    expected_step: int, lr: float
) -> None:
    optimizers, seeds = with_seed()
    optimizers.apply(renewal(Kind.OPTIMIZER_COMMAND_CREATE_SEED, expected_step=100), 108, seeds)
    late = command(Kind.OPTIMIZER_COMMAND_CREATE_SEED, expected_step=expected_step, hyperparameters={"lr": lr})

    reason, detail = refusal(optimizers.apply(late, 120, seeds))

    assert reason == Reason.REASON_UNEXPECTED_STEP
    assert detail == f"expected_step is {expected_step}; one of 100 was carried out before step 108"
    assert optimizers.hyperparameters("s0")["lr"] == 0.3


def test_a_later_expected_step_is_a_new_wish() -> None:
    optimizers, seeds = with_seed()

    for expected_step in (100, 200):
        optimizers.apply(renewal(Kind.OPTIMIZER_COMMAND_RESET_STATE, expected_step=expected_step), 210, seeds)

    assert optimizers.generations["s0"] == 3


def test_a_refused_command_is_tried_anew_when_it_is_repeated() -> None:
    optimizers, seeds = with_seed()
    wish = renewal(Kind.OPTIMIZER_COMMAND_CREATE_SEED, expected_step=100)

    early = optimizers.apply(wish, 108, {})
    late = optimizers.apply(wish, 116, seeds)

    assert refusal(early)[0] == Reason.REASON_UNKNOWN_SEED
    assert (late.status, late.detail) == (APPLIED, "AdamW of 3 parameters with 46 elements")


def test_a_lease_granted_twice_is_the_same_lease() -> None:
    optimizers, seeds = with_seed()
    lease = command(Kind.OPTIMIZER_COMMAND_STEP, expected_step=10, num_steps=3, grad_clip_norm=0.5)
    longer = command(Kind.OPTIMIZER_COMMAND_STEP, expected_step=12, num_steps=3)

    for each in (lease, longer, lease):
        assert optimizers.apply(each, 9, seeds).status == APPLIED

    assert len(optimizers._seeds["s0"].leases.granted()) == 2
    covering = optimizers._seeds["s0"].leases.at(12)
    assert covering is not None and covering.grad_clip_norm == 0.0  # the newest; the repeat has not come after it


def test_a_restarted_rank_stands_where_the_last_one_stood() -> None:
    optimizers, seeds = with_seed()
    wish = renewal(Kind.OPTIMIZER_COMMAND_CREATE_SEED, expected_step=100)
    for each in (wish, command(Kind.OPTIMIZER_COMMAND_STEP, expected_step=110, num_steps=5, grad_clip_norm=0.5)):
        optimizers.apply(each, 108, seeds)
    optimizers.adjust(adjustment("s0", lr=0.7))
    optimizers.adjust(adjustment("host", lr=0.2))
    anew, twins = with_seed()

    anew.resume(optimizers.standing())

    assert anew.generations == optimizers.generations == {"host": 1, "s0": 2}
    assert (anew.learning_rate("s0"), anew.learning_rate()) == (0.7, 0.2)
    assert anew.apply(wish, 120, twins).detail == "carried out before step 108; a repeat changes nothing"
    assert anew._seeds["s0"].leases.granted() == optimizers._seeds["s0"].leases.granted()
