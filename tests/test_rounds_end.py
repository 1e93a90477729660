"""No round ends unsaid while somebody waits for it, whoever comes and goes meanwhile, and whatever is read twice."""

from __future__ import annotations

from esper.leyline import contracts as pb
from esper.tamiyo.coordinator import Coordinator
from esper.tamiyo.outcome import Outcome
from esper.tamiyo.overdue import ROUND_NS
from tests.rounds import S, farewell, germinate, heartbeat, last_proposal, opened, replica, replicas, vote, with_roster

T = 1_700_000_000 * S


def met_by_one_that_leaves() -> tuple[Coordinator, pb.BarrierProposal]:
    """A round is open that only worker-0 was asked on, and worker-1 has begun and ended since."""
    coordinator = replicas(0)
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposal = last_proposal(coordinator.tick(0))
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


def test_a_command_refused_at_the_end_of_a_run_is_not_judged_when_it_is_read_again() -> None:
    coordinator = replicas(0)
    coordinator.on_heartbeat(farewell(0), 0)
    command = opened(germinate(), "1-0")
    coordinator.on_command("commands", command)
    refused = coordinator.tick(0).receipts

    again = coordinator.on_command("commands", command._replace(redelivered=True))

    assert [receipt.entry_id for receipt in refused] == ["1-0"]
    assert (again.receipts, again.done) == ([], [("commands", "1-0")])


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


def spoken(coordinator: Coordinator, until_ns: int, since_ns: int) -> Outcome:
    """What the last tick says, where both ranks are heard from their boundaries every second, and vote on nothing."""
    outcome = Outcome()
    for now_ns in range(since_ns, until_ns + 1, S):
        for rank in (0, 1):
            coordinator.on_heartbeat(heartbeat(rank, 1 + (now_ns - since_ns) // S), now_ns)
        outcome = coordinator.tick(now_ns)
    return outcome


def test_where_ranks_vote_on_nothing_that_is_asked_numbers_go_on_above_all_that_they_can_have_met() -> None:
    """As where Redis fell back, and they know of a later generation: no round of an earlier one would ever end."""
    coordinator = Coordinator("coordinator")
    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank), T)
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    first = last_proposal(coordinator.tick(T))

    outcome = spoken(coordinator, T + ROUND_NS, since_ns=T)

    abort, again = outcome.decisions[0], last_proposal(outcome)
    assert isinstance(abort, pb.BarrierAbort) and abort.round == first.round == 1
    assert (again.round, again.roster_generation) == (1_002, 1_700_000_021)


def test_a_round_on_which_somebody_has_voted_is_not_void() -> None:
    coordinator = Coordinator("coordinator")
    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank), T)
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    coordinator.tick(T)
    coordinator.on_vote(vote(0), ("votes", "1-0"), T)

    again = last_proposal(spoken(coordinator, T + ROUND_NS, since_ns=T))

    assert (again.round, again.roster_generation) == (2, 1)
