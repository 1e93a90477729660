"""When a round opens, what it decides and when it ends: the coordinator's rule, bare."""

from __future__ import annotations

import pytest

from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.tamiyo.coordinator import Coordinator
from esper.tamiyo.overdue import FAREWELL_NS
from tests.rounds import (
    ACCEPTED,
    REJECTED,
    S,
    commit_of,
    germinate,
    heartbeat,
    opened,
    proposed,
    rollback,
    state,
    train,
    vote,
    with_roster,
)

TRAINING = pb.SeedLifecycleStage.SEED_STAGE_TRAINING
DORMANT = pb.SeedLifecycleStage.SEED_STAGE_DORMANT
UNLIKE = (b"d" * 32, b"x" * 32)


def test_a_round_is_proposed_when_a_command_waits_and_all_ranks_are_known() -> None:
    coordinator = Coordinator("coordinator")
    coordinator.on_command("commands", opened(germinate(), "1-0"))

    coordinator.on_heartbeat(heartbeat(0), 0)
    early = coordinator.tick(0)
    coordinator.on_heartbeat(heartbeat(1), 0)

    assert early.decisions == []
    proposal = proposed(coordinator)
    assert (proposal.round, proposal.roster_generation) == (1, 1)
    assert list(proposal.roster) == ["worker-0", "worker-1"]
    assert coordinator.tick(0).decisions == []


def test_a_hundredth_step_is_answered_by_one_round_whoever_announces_it() -> None:
    coordinator = with_roster()

    coordinator.on_heartbeat(heartbeat(0, 100, due=True), 0)
    proposed(coordinator)
    commit_of(coordinator, vote(0, 101), vote(1, 99))
    coordinator.on_heartbeat(heartbeat(1, 100, due=True), 0)

    assert coordinator.tick(0).decisions == []


def test_a_rank_that_is_paused_is_answered_at_the_step_before_which_it_stands() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "9-0"))
    proposed(coordinator)
    commit, _ = commit_of(coordinator, vote(0, 10), vote(1, 10))
    proposals = []

    for applied in (0, 1):
        for rank in range(2):
            paused = heartbeat(rank, commit.effective_step, due=rank == 0, applied=applied)
            paused.busy = pb.BusyWith.BUSY_PAUSED
            coordinator.on_heartbeat(paused, 0)
        proposals.append([each.round for each in coordinator.tick(0).decisions])

    assert proposals == [[], [2]]


def test_commands_of_one_round_are_judged_in_order() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(train(), "10-0"))
    coordinator.on_command("commands", opened(germinate(), "9-0"))
    coordinator.on_command("commands", opened(germinate("s1", site="hed"), "11-0"))
    proposed(coordinator)

    commit, outcome = commit_of(coordinator, vote(0, 10), vote(1, 12), now_ns=3_000_000)

    assert (commit.effective_step, commit.latency_ms, commit.snapshot) == (20, 3.0, True)
    assert [each.entry_id for each in commit.commands] == ["9-0", "10-0"]
    assert commit.commands_position == "11-0"
    assert commit.digest == barrier_digest(20, commit.commands, [])
    assert [(each.entry_id, each.status) for each in outcome.receipts] == [
        ("9-0", ACCEPTED),
        ("10-0", ACCEPTED),
        ("11-0", REJECTED),
    ]
    assert [(each.step, each.round, each.world_size) for each in outcome.receipts[:2]] == [(20, 1, 2)] * 2
    assert set(outcome.done) == {
        *(("votes", entry) for entry in ("0-0", "1-0")),
        *(("commands", entry) for entry in ("9-0", "10-0", "11-0")),
    }


def test_votes_given_before_the_last_commit_took_effect_meet_its_outcome() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposed(coordinator)
    commit_of(coordinator, vote(0, 10), vote(1, 10))
    coordinator.on_command("commands", opened(train(), "2-0"))
    proposed(coordinator)

    commit, outcome = commit_of(coordinator, vote(0, 12, number=2), vote(1, 12, number=2))

    assert [each.entry_id for each in commit.commands] == ["2-0"]
    assert [each.status for each in outcome.receipts] == [ACCEPTED]


def test_held_ranks_that_have_applied_the_last_commit_are_believed() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposed(coordinator)
    commit_of(coordinator, vote(0, 10, held_step=10), vote(1, 10, held_step=10))
    coordinator.on_command("commands", opened(train(), "2-0"))
    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank, 10, applied=1), 0)
    proposed(coordinator)

    commit, outcome = commit_of(
        coordinator, vote(0, 10, held_step=10, number=2), vote(1, 10, held_step=10, number=2, digest=b"x" * 32)
    )

    assert [each.reason for each in outcome.receipts] == [pb.ReasonCode.REASON_UNKNOWN_SEED]  # its G0 had failed
    assert list(commit.deviating) == ["worker-0", "worker-1"]


@pytest.mark.parametrize(("settled", "named"), [(0, []), (1, ["worker-0", "worker-1"])])
def test_where_a_rank_may_just_have_changed_its_weights_only_what_was_settled_is_compared(
    settled: int, named: list[str]
) -> None:
    coordinator = with_roster()
    for number in (1, 2):
        coordinator.on_command("commands", opened(germinate(), f"{number}-0"))
        proposed(coordinator)
        votes = [
            vote(rank, 10, held_step=10, number=number, digest=each, settled=(settled, each))
            for rank, each in enumerate(UNLIKE)
        ]
        commit, _ = commit_of(coordinator, *votes)

    assert (commit.digests_compared, list(commit.deviating)) == (settled > 0, named)


def test_what_follows_a_rollback_waits_until_all_ranks_are_past_it() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(rollback(), "1-0"))
    coordinator.on_command("commands", opened(germinate(), "2-0"))
    proposed(coordinator)

    commit, _ = commit_of(coordinator, vote(0, 10, snapshots={8: b"a"}), vote(1, 10, snapshots={8: b"a"}))
    coordinator.on_heartbeat(heartbeat(0, 18, applied=1), 0)
    coordinator.on_heartbeat(heartbeat(1, 18), 0)
    early = coordinator.tick(0)
    coordinator.on_heartbeat(heartbeat(1, 19), 0)

    assert [(each.entry_id, each.snapshot_step) for each in commit.commands] == [("1-0", 8)]
    assert early.decisions == []
    assert proposed(coordinator).round == 2


def test_a_request_of_any_rank_is_taken_over_once() -> None:
    coordinator = with_roster()
    cull = pb.SeedRequest(seed_id="s0", operation=pb.SeedOperation.SEED_OP_CULL)
    seeds = [state("s0", TRAINING), state("s1", DORMANT)]
    illegal = pb.SeedRequest(seed_id="s1", operation=pb.SeedOperation.SEED_OP_CULL)
    coordinator.on_heartbeat(heartbeat(0, 100, due=True), 0)
    proposed(coordinator)

    commit, _ = commit_of(
        coordinator, vote(0, 10, seeds=seeds, requests=[cull]), vote(1, 10, seeds=seeds, requests=[cull, illegal])
    )

    assert list(commit.requests) == [cull]
    assert commit.digest == barrier_digest(18, [], [cull])


def test_a_late_vote_is_acknowledged_and_its_request_opens_another_round() -> None:
    coordinator = with_roster()
    cull = pb.SeedRequest(seed_id="s0", operation=pb.SeedOperation.SEED_OP_CULL)

    outcome = coordinator.on_vote(vote(0, 10, number=9, requests=[cull]), ("votes", "5-0"), 0)

    assert outcome.done == [("votes", "5-0")]
    assert proposed(coordinator).round == 1


def test_a_snapshot_is_taken_at_the_first_commit_and_then_at_each_multiple() -> None:
    coordinator = with_roster(snapshot_every=100)
    taken = []

    for number, step in enumerate([10, 50, 91, 93, 192], start=1):
        coordinator.on_command("commands", opened(rollback(7), f"{number}-0"))
        proposed(coordinator)
        commit, _ = commit_of(coordinator, vote(0, step, number=number), vote(1, step, number=number))
        taken.append((commit.effective_step, commit.snapshot))

    assert taken == [(18, True), (58, False), (99, False), (101, True), (200, True)]


def test_a_worker_that_compiles_for_longer_is_waited_for_and_votes_when_it_comes_back() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposed(coordinator)
    busy = heartbeat(1)
    busy.busy = pb.BusyWith.BUSY_COMPILE
    coordinator.on_heartbeat(busy, 1 * S)
    coordinator.on_vote(vote(0), ("votes", "9-0"), 1 * S)

    coordinator.on_heartbeat(heartbeat(0), 18 * S)
    meanwhile = coordinator.tick(19 * S)
    coordinator.on_heartbeat(heartbeat(1), 19 * S)
    commit, _ = commit_of(coordinator, vote(1), now_ns=19 * S)

    assert meanwhile.decisions == []
    assert [each.entry_id for each in commit.commands] == ["1-0"]


def test_a_paused_worker_that_falls_silent_is_not_waited_for() -> None:
    coordinator = Coordinator("coordinator")
    coordinator.on_heartbeat(heartbeat(world_size=1), 0)
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposed(coordinator)
    paused = heartbeat(world_size=1)
    paused.busy = pb.BusyWith.BUSY_PAUSED
    coordinator.on_heartbeat(paused, 1 * S)

    still_open = coordinator.tick(6 * S - 1)
    [abort, retry] = coordinator.tick(6 * S).decisions

    assert still_open.decisions == []
    assert isinstance(abort, pb.BarrierAbort)
    assert (list(abort.missing), list(abort.evicted)) == (["worker-0"], [])
    assert isinstance(retry, pb.BarrierProposal)


def test_a_round_ends_before_those_that_voted_give_up() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposed(coordinator)

    coordinator.on_heartbeat(heartbeat(0), 19 * S)
    coordinator.on_heartbeat(heartbeat(1), 19 * S)

    assert isinstance(coordinator.tick(20 * S).decisions[0], pb.BarrierAbort)


def test_another_process_in_a_rank_makes_another_roster() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposed(coordinator)

    outcome = coordinator.on_heartbeat(heartbeat(1, incarnation=2), 0)

    [abort] = outcome.decisions
    assert isinstance(abort, pb.BarrierAbort)
    assert abort.reason == pb.ReasonCode.REASON_ROSTER_CHANGED
    again = proposed(coordinator)
    assert (again.round, again.roster_generation) == (2, 2)


def test_commands_after_the_end_of_a_run_are_answered() -> None:
    coordinator = with_roster()
    farewell = heartbeat(1, 400)
    farewell.report.worker = "worker-1"
    coordinator.on_heartbeat(farewell, 0)
    coordinator.on_command("commands", opened(germinate(), "1-0"))

    outcome = coordinator.tick(0)

    [receipt] = outcome.receipts
    assert (receipt.status, receipt.reason) == (REJECTED, pb.ReasonCode.REASON_PAST_DEADLINE)
    assert receipt.detail == "the run is over: worker-1 left it before step 400"
    assert outcome.done == [("commands", "1-0")]
    assert outcome.decisions == []


def farewell(rank: int) -> pb.Heartbeat:
    beat = heartbeat(rank, 400)
    beat.report.worker = f"worker-{rank}"
    return beat


def test_a_round_is_aborted_once_everyone_who_was_asked_has_left() -> None:
    """Another process of such a name may have begun by then, and have been asked."""
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposed(coordinator)
    coordinator.on_vote(vote(1), ("votes", "1-0"), 0)
    coordinator.on_heartbeat(farewell(0), 0)
    undecided = coordinator.tick(FAREWELL_NS - 1)
    coordinator.on_heartbeat(farewell(1), 0)

    outcome = coordinator.tick(FAREWELL_NS - 1)

    assert undecided.decisions == []
    [abort] = outcome.decisions
    assert isinstance(abort, pb.BarrierAbort) and (abort.round, abort.detail) == (1, "everyone that was asked has left")
    assert ("votes", "1-0") in outcome.done


def test_a_round_whose_voter_stays_alone_is_aborted() -> None:
    coordinator = with_roster()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    proposed(coordinator)
    coordinator.on_heartbeat(farewell(0), 0)

    [abort] = coordinator.tick(FAREWELL_NS).decisions

    assert isinstance(abort, pb.BarrierAbort)
    assert abort.detail == "worker-0 left the run"


def test_a_coordinator_started_anew_aborts_the_open_round_and_counts_on() -> None:
    first = pb.BarrierProposal(round=6, roster_generation=2, roster=["worker-0", "worker-1"])
    commit = pb.BarrierCommit(round=6, roster_generation=2, effective_step=40, snapshot=True)
    second = pb.BarrierProposal(round=7, roster_generation=2, roster=["worker-0", "worker-1"])
    anew = Coordinator("coordinator")

    outcome = anew.resume([first, commit, pb.BarrierAbort(round=6), second])
    anew.on_command("commands", opened(germinate(), "1-0"))
    anew.on_heartbeat(heartbeat(0, 41), 0)
    anew.on_heartbeat(heartbeat(1, 40), 0)
    early = anew.tick(0)
    anew.on_heartbeat(heartbeat(1, 40, applied=6), 0)

    [abort] = outcome.decisions
    assert isinstance(abort, pb.BarrierAbort)
    assert (abort.round, abort.reason, list(abort.missing)) == (7, pb.ReasonCode.REASON_ROSTER_CHANGED, [])
    assert early.decisions == []  # worker-1 may not have applied round 6 yet
    again = proposed(anew)
    assert (again.round, again.roster_generation) == (8, 2)
