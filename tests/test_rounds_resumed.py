"""A leader that begins knows the processes that voted from others of their names, which their last commit binds to
nothing."""

from __future__ import annotations

import pytest

from esper.leyline import contracts as pb
from esper.leyline.succession import Decision
from esper.tamiyo.coordinator import Coordinator
from tests.rounds import germinate, heartbeat, opened, vote

FAR = 5_000
"""The step at which the first round was voted on."""


def beat(coordinator: Coordinator, number: int, step: int, *, of: int, incarnation: int, applied: int = 0) -> None:
    said = heartbeat(number, step, world_size=of, incarnation=incarnation, applied=applied)
    said.rank = number % of
    coordinator.on_heartbeat(said, 0)


def decided(num: int, of: int) -> list[Decision]:
    """What a leader says until its first commit, which so many workers have voted on at a late step."""
    coordinator = Coordinator("coordinator")
    for number in range(num):
        beat(coordinator, number, 0, of=of, incarnation=number + 1)
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    said = coordinator.tick(0).decisions
    for number in range(num):
        generation = said[-1].roster_generation
        given = vote(number, FAR, number=1, generation=generation)
        said += coordinator.on_vote(given, ("votes", f"{number + 1}-0"), 0).decisions
    assert isinstance(said[-1], pb.BarrierCommit) and said[-1].effective_step == FAR + 8
    return said


def resumed(num: int, of: int) -> Coordinator:
    """A leader that finds this, and a command."""
    coordinator = Coordinator("coordinator")
    coordinator.resume(decided(num, of))
    coordinator.on_command("commands", opened(germinate("s1", "hidden"), "2-0"))
    return coordinator


@pytest.mark.parametrize(("num", "of"), [(2, 2), (1, 1), (2, 1)], ids=["a group", "one worker", "two replicas"])
def test_where_all_were_started_anew_meanwhile_a_command_takes_effect_where_they_stand(num: int, of: int) -> None:
    coordinator = resumed(num, of)
    for number in range(num):
        beat(coordinator, number, 10, of=of, incarnation=number + 77)

    [proposal] = coordinator.tick(0).decisions
    votes = [vote(number, 10, number=2, generation=proposal.roster_generation) for number in range(num)]
    outcomes = [coordinator.on_vote(each, ("votes", f"9-{each.worker}"), 0) for each in votes]

    [commit] = outcomes[-1].decisions
    assert isinstance(commit, pb.BarrierCommit)
    assert ([ref.entry_id for ref in commit.commands], commit.effective_step) == (["2-0"], 18)


@pytest.mark.parametrize(("num", "of"), [(2, 2), (1, 1), (2, 1)], ids=["a group", "one worker", "two replicas"])
def test_those_that_voted_are_waited_for_until_they_have_carried_it_out(num: int, of: int) -> None:
    coordinator = resumed(num, of)
    for number in range(num):
        beat(coordinator, number, FAR + 1, of=of, incarnation=number + 1)

    before = coordinator.tick(0).decisions
    for number in range(num):
        beat(coordinator, number, FAR + 8, of=of, incarnation=number + 1, applied=1)
    [proposal] = coordinator.tick(0).decisions

    assert before == []
    assert isinstance(proposal, pb.BarrierProposal)
    assert (proposal.round, list(proposal.incarnations)) == (2, [number + 1 for number in range(num)])


def test_the_step_before_which_another_may_wait_stays_where_one_of_two_replicas_was_started_anew() -> None:
    coordinator = resumed(2, 1)
    beat(coordinator, 0, 10, of=1, incarnation=77)
    beat(coordinator, 1, FAR + 1, of=1, incarnation=2)

    assert coordinator.tick(0).decisions == []


def test_a_proposal_that_names_no_processes_tells_no_others() -> None:
    """As earlier versions of this have sealed them."""
    said = decided(2, 2)
    del said[0].incarnations[:]  # type: ignore[union-attr]
    coordinator = Coordinator("coordinator")
    coordinator.resume(said)
    for number in (0, 1):
        beat(coordinator, number, FAR + 8, of=2, incarnation=number + 77, applied=1)
    coordinator.on_command("commands", opened(germinate("s1", "hidden"), "2-0"))

    [proposal] = coordinator.tick(0).decisions

    assert proposal.roster_generation == said[0].roster_generation
