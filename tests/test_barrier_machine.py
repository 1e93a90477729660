"""Coordinator, orders and step boundaries, driven in any order by hypothesis."""

from __future__ import annotations

from hypothesis import settings

from tests.barrier_kit import PROMISE_STEPS, Barriers

Barriers.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestBarriers = Barriers.TestCase


def test_a_command_published_alone_takes_effect_within_ten_steps_of_the_next_boundary_and_nobody_waits() -> None:
    run = Barriers()
    run.begin()
    run.all_goes_well_for_a_while(30)
    next_boundary = run.ranks[0].step + 1

    run.publish()
    run.all_goes_well_for_a_while(1)
    for _ in range(12):
        assert not any(rank.boundary.must_wait(rank.step) for rank in run.ranks)
        run.all_goes_well_for_a_while(1)

    effective = {step for rank in run.ranks for _, step in rank.applied}
    assert len(effective) == 1
    assert effective.pop() - next_boundary <= PROMISE_STEPS + 2
