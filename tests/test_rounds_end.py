"""No round ends unsaid while somebody waits for it, whoever comes and goes meanwhile, and whatever is read twice."""

from __future__ import annotations

from esper.leyline import contracts as pb
from esper.tamiyo.coordinator import Coordinator
from tests.rounds import germinate, opened, vote
from tests.test_replicas import S, farewell, proposed, replica, replicas
from tests.test_rounds import with_roster


def met_by_one_that_leaves() -> tuple[Coordinator, pb.BarrierProposal]:
    """A round is open that only worker-0 was asked on, and worker-1 has begun and ended since."""
    coordinator = replicas(0)
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposal = proposed(coordinator.tick(0))
    for beat in (replica(1), farewell(1)):
        coordinator.on_heartbeat(beat, 0)
    return coordinator, proposal


def test_an_open_round_outlasts_one_that_was_not_asked_and_has_left() -> None:
    coordinator, proposal = met_by_one_that_leaves()

    said = coordinator.tick(0).decisions
    given = vote(0, 10, number=proposal.round, generation=proposal.roster_generation)
    [commit] = coordinator.on_vote(given, ("votes", "1-0"), 0).decisions

    assert said == []
    assert isinstance(commit, pb.BarrierCommit) and commit.round == proposal.round


def test_groups_of_one_that_came_and_left_during_a_round_go_once_it_is_decided() -> None:
    coordinator, proposal = met_by_one_that_leaves()
    given = vote(0, 10, number=proposal.round, generation=proposal.roster_generation)

    before = coordinator.tick(0).left
    coordinator.on_vote(given, ("votes", "1-0"), 0)
    after = [coordinator.tick(0).left, coordinator.tick(0).left]
    coordinator.on_heartbeat(farewell(0), 0)

    assert (before, after) == ([], [["worker-1"], []])
    assert coordinator.tick(2 * S).decisions == []


def test_a_vote_that_is_read_twice_is_done_with_once() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    coordinator.tick(0)

    outcomes = [
        coordinator.on_vote(vote(0), ("votes", "5-0"), 0),
        coordinator.on_vote(vote(0), ("votes", "5-0"), 0),
        coordinator.on_vote(vote(1), ("votes", "6-0"), 0),
    ]

    assert [("votes", "5-0") in outcome.done for outcome in outcomes] == [False, False, True]
