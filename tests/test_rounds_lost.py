"""What the coordinator's rule makes of commands that are refused, too many, or lost with the history of Redis."""

from __future__ import annotations

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.entries import LAST_ID
from esper.leyline.succession import MOST, MOST_GENERATION
from esper.leyline.validate.messages import validate
from esper.tamiyo.command_queue import MOST_WAITING
from esper.tamiyo.coordinator import Coordinator
from tests.rounds import (
    REJECTED,
    S,
    commit_of,
    germinate,
    heartbeat,
    opened,
    proposed,
    rollback,
    train,
    vote,
    with_roster,
)

EMPTY = {"commands": "0-0", "optimizer": "0-0"}


def test_where_ranks_are_under_way_but_no_decision_is_on_record_numbers_begin_above_all_they_met() -> None:
    coordinator = Coordinator("coordinator")
    coordinator.resume([])
    coordinator.on_command("commands", opened(germinate(), "1-0"))

    coordinator.on_heartbeat(heartbeat(0, 500, applied=7), 1_700_000_000 * S)
    coordinator.on_heartbeat(heartbeat(1, 500, applied=6), 1_700_000_000 * S)

    proposal = proposed(coordinator, 1_700_000_000 * S)
    assert (proposal.round, proposal.roster_generation) == (1_008, 1_700_000_001)


def test_a_coordinator_that_finds_older_decisions_than_its_ranks_have_met_goes_on_above_them() -> None:
    first = with_roster()
    first.on_command("commands", opened(germinate(), "1-0"))
    proposal = proposed(first)
    commit, _ = commit_of(first, vote(0), vote(1))
    coordinator = Coordinator("coordinator")
    coordinator.resume([proposal, commit])
    coordinator.on_command("commands", opened(germinate("s1", "hidden"), "2-0"))

    coordinator.on_heartbeat(heartbeat(0, 500, applied=3), 1_700_000_000 * S)
    coordinator.on_heartbeat(heartbeat(1, 500, applied=2), 1_700_000_000 * S)

    later = proposed(coordinator, 1_700_000_000 * S)
    assert (later.round, later.roster_generation) == (1_004, 1_700_000_001)


def test_it_goes_on_above_their_generation_also_where_the_clock_was_set_back() -> None:
    """As that of another server may be, which has taken over."""
    coordinator = Coordinator("coordinator")
    began = pb.BarrierProposal(version=1, round=1_001, roster_generation=1_700_000_001, roster=["worker-0", "worker-1"])
    coordinator.resume([began])
    coordinator.on_command("commands", opened(germinate(), "1-0"))

    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank, 500, applied=1_003), 1_699_990_000 * S)

    later = proposed(coordinator, 1_699_990_000 * S)
    assert (later.round, later.roster_generation) == (2_004, 1_700_000_002)


def test_it_goes_on_above_a_generation_that_ranks_have_met_by_a_clock_ahead() -> None:
    coordinator = Coordinator("coordinator")
    coordinator.resume([])
    coordinator.on_command("commands", opened(germinate(), "1-0"))

    for rank in (0, 1):
        beat = heartbeat(rank)
        beat.roster_generation = 1_700_000_001
        coordinator.on_heartbeat(beat, 1_699_990_000 * S)

    assert proposed(coordinator, 1_699_990_000 * S).roster_generation == 1_700_000_002


def test_it_goes_on_above_the_most_that_ranks_may_say_that_they_have_met() -> None:
    coordinator = Coordinator("coordinator")
    coordinator.resume([])
    coordinator.on_command("commands", opened(germinate(), "1-0"))

    for rank in (0, 1):
        beat = heartbeat(rank, MOST, applied=MOST)
        beat.lease_token = beat.round_met = MOST
        beat.roster_generation = MOST_GENERATION
        validate(beat)
        coordinator.on_heartbeat(beat, 1_700_000_000 * S)
    later = proposed(coordinator, 1_700_000_000 * S)
    votes = [vote(rank, MOST, number=later.round, generation=later.roster_generation) for rank in (0, 1)]
    commit, _ = commit_of(coordinator, *votes)

    assert (later.round, later.roster_generation) == (MOST + 1_001, MOST_GENERATION + 1)
    assert (commit.round, commit.effective_step) == (MOST + 1_001, MOST + 8)


def test_it_goes_on_above_a_round_of_which_the_end_alone_is_on_record() -> None:
    """Said once more behind a loss of its proposal: to a trainer that began since, that round is past."""
    coordinator = Coordinator("coordinator")
    coordinator.resume([pb.BarrierAbort(version=1, round=3, roster_generation=2)])
    coordinator.on_command("commands", opened(germinate(), "1-0"))

    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank), 1_700_000_000 * S)

    later = proposed(coordinator, 1_700_000_000 * S)
    assert (later.round, later.roster_generation) == (4, 3)


def test_it_goes_on_above_a_round_that_ranks_were_asked_about_and_have_not_carried_out() -> None:
    """Redis fell back to before it was proposed: what was decided in it some may have read."""
    coordinator = Coordinator("coordinator")
    began = pb.BarrierProposal(version=1, round=1, roster_generation=1, roster=["worker-0", "worker-1"])
    coordinator.resume([began, pb.BarrierAbort(version=1, round=1, roster_generation=1)])
    coordinator.on_command("commands", opened(germinate(), "1-0"))

    for rank in (0, 1):
        beat = heartbeat(rank)
        beat.roster_generation, beat.round_met = 1, 2
        coordinator.on_heartbeat(beat, 1_700_000_000 * S)

    assert proposed(coordinator, 1_700_000_000 * S).round == 1_003


def test_a_coordinator_that_learns_only_later_of_newer_rounds_goes_on_above_them() -> None:
    coordinator = Coordinator("coordinator")
    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank), 1_700_000_000 * S)
    coordinator.tick(1_700_000_000 * S)
    coordinator.on_command("commands", opened(germinate(), "1-0"))

    coordinator.on_heartbeat(heartbeat(1, 500, applied=3), 1_700_000_000 * S)

    later = proposed(coordinator, 1_700_000_000 * S)
    assert (later.round, later.roster_generation) == (1_004, 1_700_000_001)


def test_when_redis_loses_its_history_the_last_decision_is_said_again_and_the_open_round_ends() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposed(coordinator)
    commit, _ = commit_of(coordinator, vote(0), vote(1))
    coordinator.on_command("commands", opened(train(), "2-0"))
    coordinator.on_command("commands", opened(germinate("s1", "hidden"), "3-0"))
    proposed(coordinator)
    coordinator.on_vote(vote(0, number=2), ("votes", "9-0"), 0)

    outcome = coordinator.on_history_lost({("commands", "2-0"), ("votes", "9-0")}, EMPTY, 0, again=True)
    again = proposed(coordinator)
    judged, _ = commit_of(coordinator, vote(0, number=3), vote(1, number=3))

    said, abort = outcome.decisions
    assert said == commit
    assert isinstance(abort, pb.BarrierAbort) and abort.round == 2
    assert [(each.entry_id, each.status, each.reason) for each in outcome.receipts] == [
        ("2-0", REJECTED, pb.ReasonCode.REASON_CANCELLED)
    ]
    assert outcome.done == []
    assert again.round == 3
    assert [each.entry_id for each in judged.commands] == ["3-0"]


def test_what_is_added_behind_a_loss_by_a_clock_behind_is_judged() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "5-0"))
    proposed(coordinator)
    commit_of(coordinator, vote(0), vote(1))

    coordinator.on_history_lost([], {"commands": "3-0", "optimizer": "0-0"}, 0, again=True)
    again = coordinator.on_command("commands", opened(germinate(), "3-0")._replace(redelivered=True))
    new = coordinator.on_command("commands", opened(germinate("s1", "hidden"), "3-1"))
    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank, 20, applied=1), 0)
    proposed(coordinator)
    commit, _ = commit_of(coordinator, vote(0, 20, number=2), vote(1, 20, number=2))

    assert (again.done, new.receipts) == ([("commands", "3-0")], [])
    assert [each.entry_id for each in commit.commands] == ["3-1"]


def test_a_decision_that_every_rank_has_carried_out_is_not_said_again() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposed(coordinator)
    commit_of(coordinator, vote(0), vote(1))
    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank, 20, applied=1), 0)

    assert coordinator.on_history_lost([], EMPTY, 0, again=True).decisions == []


def test_nothing_is_said_again_where_the_decisions_are_there() -> None:
    """One who began since would take it for its own, and its step has gone by."""
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposed(coordinator)
    commit_of(coordinator, vote(0), vote(1))

    assert coordinator.on_history_lost([], EMPTY, 0, again=False).decisions == []


def test_a_commit_that_a_rank_may_have_missed_is_said_again_also_behind_an_abort() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposed(coordinator)
    commit, _ = commit_of(coordinator, vote(0), vote(1))
    coordinator.on_command("commands", opened(train(), "2-0"))
    proposed(coordinator)
    for rank in (0, 1):
        alive = heartbeat(rank)
        alive.repeated = True
        coordinator.on_heartbeat(alive, 4 * S)
    abort, _ = coordinator.tick(5 * S).decisions

    assert isinstance(abort, pb.BarrierAbort) and abort.round == 2
    assert coordinator.on_history_lost([], EMPTY, 5 * S, again=True).decisions[:2] == [commit, abort]


def test_a_new_leader_says_again_what_the_one_before_it_has_said_last() -> None:
    first = with_roster()
    first.on_command("commands", opened(germinate(), "1-0"))
    proposal = proposed(first)
    commit, _ = commit_of(first, vote(0), vote(1))
    second = pb.BarrierProposal(version=1, round=2, roster_generation=1, roster=proposal.roster)
    abort = pb.BarrierAbort(version=1, round=2, roster_generation=1)
    coordinator = Coordinator("coordinator")
    coordinator.resume([proposal, commit, second, abort])
    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank, 12), 0)

    assert coordinator.on_history_lost([], EMPTY, 0, again=True).decisions == [commit, abort]


def test_a_new_leader_says_no_commit_again_whose_group_was_replaced() -> None:
    """Of the ranks of now those that have met the newer generation would pass over it, and the others carry it out."""
    first = with_roster()
    first.on_command("commands", opened(germinate(), "1-0"))
    proposal = proposed(first)
    commit, _ = commit_of(first, vote(0), vote(1))
    second = pb.BarrierProposal(version=1, round=2, roster_generation=2, roster=proposal.roster)
    abort = pb.BarrierAbort(version=1, round=2, roster_generation=2)
    coordinator = Coordinator("coordinator")
    coordinator.resume([proposal, commit, second, abort])
    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank, 5, incarnation=2), 0)

    assert coordinator.on_history_lost([], EMPTY, 0, again=True).decisions == [abort]


def test_a_new_leader_says_again_also_what_it_found_without_the_proposal_before_it() -> None:
    """As where Redis had lost that before, and an abort of the round was said behind it."""
    gone = pb.EvictedProcess(worker="worker-0", incarnation=1)
    abort = pb.BarrierAbort(version=1, round=2, roster_generation=1, evicted=[gone])
    coordinator = Coordinator("coordinator")
    coordinator.resume([abort])
    coordinator.on_heartbeat(heartbeat(0), 0)
    heard_of_one_evicted = coordinator.tick(6 * S).decisions

    assert coordinator.on_history_lost([], EMPTY, 0, again=True).decisions == [abort]
    assert heard_of_one_evicted == []
    assert coordinator._roster.names == ()


def test_a_commit_lets_go_of_what_only_the_coordinator_refused() -> None:
    coordinator = with_roster()
    coordinator.on_refused(("commands", "5-0"), RefusedError(pb.ReasonCode.REASON_POISON, "five times"), 0)
    coordinator.pass_over(("optimizer", "6-0"))
    coordinator.pass_over(("optimizer", LAST_ID))  # which an administrator takes back
    coordinator.on_heartbeat(heartbeat(0, 100, due=True), 0)
    proposed(coordinator)

    commit, _ = commit_of(coordinator, vote(0, 100), vote(1, 100))

    assert (commit.commands_position, commit.optimizer_position) == ("5-0", "6-0")


def test_what_was_refused_behind_a_command_that_still_waits_is_let_go_with_it() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(rollback(), "1-0"))
    coordinator.on_command("commands", opened(germinate(), "2-0"))
    coordinator.pass_over(("commands", "3-0"))
    proposed(coordinator)
    first, _ = commit_of(coordinator, vote(0, snapshots={8: b"a"}), vote(1, snapshots={8: b"a"}))
    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank, 20, applied=1), 0)
    proposed(coordinator)
    second, _ = commit_of(coordinator, vote(0, 20, number=2), vote(1, 20, number=2))

    assert (first.commands_position, second.commands_position) == ("1-0", "3-0")


def test_a_thousand_commands_of_one_log_wait_here_and_further_ones_in_redis() -> None:
    coordinator = Coordinator("coordinator")
    for number in range(1, MOST_WAITING):
        coordinator.on_command("commands", opened(germinate(f"s{number}"), f"{number}-0"))
    before = coordinator.has_room("commands")
    coordinator.on_command("commands", opened(germinate(), "9999-0"))

    assert (before, coordinator.has_room("commands"), coordinator.has_room("optimizer")) == (True, False, True)


def test_a_command_never_met_that_lies_before_what_is_judged_is_refused_and_not_forgotten() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "2-0"))
    proposed(coordinator)
    commit_of(coordinator, vote(0, 10), vote(1, 10))

    late = coordinator.on_command("commands", opened(germinate("s1"), "1-0"), 7)
    again = coordinator.on_command("commands", opened(germinate(), "2-0")._replace(redelivered=True), 7)

    assert [(each.entry_id, each.reason) for each in late.receipts] == [("1-0", pb.ReasonCode.REASON_CANCELLED)]
    assert late.done == [("commands", "1-0")]
    assert (again.receipts, again.done) == ([], [("commands", "2-0")])
