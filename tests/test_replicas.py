"""Workers outside a process group come, go and are given up one by one: the rule, bare."""

from __future__ import annotations

from itertools import pairwise

import pytest

from esper.bus.group.delivery import Delivery
from esper.errors import EvictedError
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.runtime.beside.orders import Orders
from esper.tamiyo.coordinator import Coordinator
from esper.tamiyo.evicted_replicas import EvictedReplicas
from esper.tamiyo.outcome import Outcome
from esper.tolaria.boundary import Boundary
from tests.rounds import (
    S,
    farewell,
    germinate,
    heartbeat,
    last_proposal,
    opened,
    replica,
    replicas,
    rollback,
    state,
    train,
    vote,
)


def answered(coordinator: Coordinator, proposal: pb.BarrierProposal, *votes: pb.BarrierVote) -> pb.BarrierCommit:
    """What the round comes to with these votes."""
    outcome = Outcome()
    for at, given in enumerate(votes):
        given.round, given.roster_generation = proposal.round, proposal.roster_generation
        outcome = coordinator.on_vote(given, ("votes", f"{proposal.round}-{at}"), proposal.time_ns)
    [commit] = outcome.decisions
    assert isinstance(commit, pb.BarrierCommit)
    return commit


def test_one_that_joins_is_asked_from_the_next_round_on_and_the_open_one_goes_on_without_it() -> None:
    coordinator = replicas(0)
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    first = last_proposal(coordinator.tick(0))

    joining = coordinator.on_heartbeat(replica(1), 0)
    commit = answered(coordinator, first, vote(0, 10))
    coordinator.on_command("commands", opened(train(), "2-0"))
    second = last_proposal(coordinator.tick(0))

    assert joining.decisions == []
    assert [ref.entry_id for ref in commit.commands] == ["1-0"]
    assert (list(first.roster), list(second.roster)) == (["worker-0"], ["worker-0", "worker-1"])
    assert second.roster_generation == first.roster_generation + 1


def test_one_that_is_silent_for_five_seconds_is_evicted_alone_and_the_others_go_on() -> None:
    coordinator = replicas(0, 1, 2)
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    open_round = last_proposal(coordinator.tick(0))
    for number in (0, 2):
        coordinator.on_heartbeat(replica(number), 4 * S)

    early = coordinator.tick(5 * S - 1)
    outcome = coordinator.tick(5 * S)

    assert early.decisions == []
    abort, proposal = outcome.decisions[0], last_proposal(outcome)
    assert isinstance(abort, pb.BarrierAbort)
    assert [(each.worker, each.incarnation) for each in abort.evicted] == [("worker-1", 11)]
    assert "worker-1 said nothing for 5 s: evicted alone" in abort.detail
    assert (abort.round, proposal.round) == (open_round.round, open_round.round + 1)
    assert list(proposal.roster) == ["worker-0", "worker-2"]
    assert proposal.roster_generation == open_round.roster_generation + 1
    assert outcome.evicted_alone == ["worker-1"]


def test_nobody_is_given_up_where_nobody_goes_on() -> None:
    coordinator = replicas(0, 1)

    assert coordinator.tick(60 * S).decisions == []


def test_one_that_trains_on_though_it_was_evicted_is_told_again() -> None:
    """What told it so is lost: it would train for ever, and be heard by nobody."""
    coordinator = replicas(0, 1)
    coordinator.on_heartbeat(replica(0), 6 * S)
    coordinator.tick(6 * S)
    told = []
    for at_s in range(7, 20):
        repeated = replica(1)
        repeated.repeated = at_s < 9  # by its runtime: its trainer may have read it, and be on its way out
        coordinator.on_heartbeat(repeated, at_s * S)
        coordinator.on_heartbeat(replica(0), at_s * S)
        told += [(at_s, each) for each in coordinator.tick(at_s * S).decisions if isinstance(each, pb.BarrierAbort)]

    assert [at_s for at_s, _ in told] == [14]
    assert [(each.worker, each.incarnation) for each in told[0][1].evicted] == [("worker-1", 11)]
    with pytest.raises(EvictedError):
        Orders(worker="worker-1", incarnation=11).on_abort(told[0][1], Delivery("decisions", "", "1-0", b"", 1, ""))
    assert [each.worker for each in coordinator._roster._members.values()] == ["worker-0"]


def test_the_groups_of_one_that_is_told_again_go_again_unless_another_bears_its_name() -> None:
    coordinator = replicas(0, 1)
    coordinator.on_heartbeat(replica(0), 6 * S)
    coordinator.tick(6 * S)
    gone = []
    for at_s in range(7, 30):
        for beat in [replica(0), replica(1)] + [heartbeat(1, world_size=1, incarnation=99)] * (at_s > 15):
            coordinator.on_heartbeat(beat, at_s * S)
        ticked = coordinator.tick(at_s * S)
        gone += [(at_s, ticked.evicted_alone)] * any(isinstance(each, pb.BarrierAbort) for each in ticked.decisions)

    assert gone == [(12, ["worker-1"]), (22, [])]


def test_one_that_cannot_read_its_eviction_is_told_less_and_less_often() -> None:
    """As one without the newest key: each time is a round, and one that leads anew reads the newest 512 decisions."""
    coordinator = replicas(0, 1)
    coordinator.on_heartbeat(replica(0), 6 * S)
    coordinator.tick(6 * S)
    told = []
    for at_s in range(7, 3_600):
        for number in (0, 1):
            coordinator.on_heartbeat(replica(number), at_s * S)
        told += [at_s for each in coordinator.tick(at_s * S).decisions if isinstance(each, pb.BarrierAbort)]

    assert told[:5] == [12, 22, 42, 82, 162] and len(told) < 14
    assert {after - before for before, after in pairwise(told[-4:])} == {600}


def test_one_that_lingers_while_no_round_can_be_opened_is_named_once_by_the_next() -> None:
    lingering = EvictedReplicas()
    for at_s in range(100):
        lingering.hear(replica(1), at_s * S)

    assert [(each.worker, each.incarnation) for each in lingering.due()] == [("worker-1", 11)]
    assert lingering.due() == []


def test_the_evicted_process_is_heard_no_more_and_the_one_after_it_joins() -> None:
    coordinator = replicas(0, 1)
    coordinator.on_heartbeat(replica(0), 4 * S)
    coordinator.tick(5 * S)

    coordinator.on_heartbeat(replica(1), 6 * S)
    coordinator.on_heartbeat(replica(0, 100, due=True), 6 * S)
    without = last_proposal(coordinator.tick(6 * S))
    answered(coordinator, without, vote(0, 100))
    coordinator.on_heartbeat(replica(1, incarnation=77), 6 * S)
    coordinator.on_heartbeat(replica(0, 200, due=True), 7 * S)
    anew = last_proposal(coordinator.tick(7 * S))

    assert (list(without.roster), list(anew.roster)) == (["worker-0"], ["worker-0", "worker-1"])


def test_one_that_says_farewell_is_not_asked_again_and_the_run_is_over_with_the_last() -> None:
    coordinator = replicas(0, 1)
    left = coordinator.on_heartbeat(farewell(1), 1 * S).left
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    commit = answered(coordinator, last_proposal(coordinator.tick(1 * S)), vote(0, 10))

    left += coordinator.on_heartbeat(farewell(0), 2 * S).left
    coordinator.on_command("commands", opened(train(), "2-0"))
    [refused] = coordinator.tick(2 * S).receipts

    assert [ref.entry_id for ref in commit.commands] == ["1-0"]
    assert refused.entry_id == "2-0" and "the run is over" in refused.detail
    assert left == ["worker-1"]  # others went on without it: its groups are to be destroyed


def test_a_heartbeat_that_comes_behind_a_farewell_brings_nobody_back() -> None:
    coordinator = replicas(0, 1)
    coordinator.on_heartbeat(farewell(1), 1 * S)
    coordinator.on_heartbeat(replica(1), 1 * S)
    coordinator.on_heartbeat(replica(0, 100, due=True), 2 * S)

    without = last_proposal(coordinator.tick(2 * S))

    assert list(without.roster) == ["worker-0"]


def test_a_command_is_judged_as_the_furthest_one_stands_and_takes_effect_at_one_step_on_all() -> None:
    coordinator = replicas(0, 1)
    coordinator.on_command("commands", opened(train("s7"), "1-0"))
    germinated = state("s7", pb.SeedLifecycleStage.SEED_STAGE_GERMINATED)

    has_joined_anew, furthest = vote(0, 3), vote(1, 400, seeds=[germinated])
    commit = answered(coordinator, last_proposal(coordinator.tick(0)), has_joined_anew, furthest)

    assert (commit.effective_step, [ref.entry_id for ref in commit.commands]) == (408, ["1-0"])


def test_digests_of_replicas_are_not_compared_and_their_snapshots_are_common_by_step() -> None:
    coordinator = replicas(0, 1, 2)
    coordinator.on_command("commands", opened(rollback(5), "1-0"))

    votes = [vote(each, 10, digest=bytes([each]) * 32, snapshots={5: bytes([each]) * 32}) for each in (0, 1, 2)]
    commit = answered(coordinator, last_proposal(coordinator.tick(0)), *votes)

    assert (commit.digests_compared, list(commit.deviating), list(commit.quarantined)) == (False, [], [])
    assert [ref.snapshot_step for ref in commit.commands] == [5]


def test_no_effective_step_lies_below_the_one_before_also_when_the_fastest_has_left() -> None:
    coordinator = replicas(0, 1)
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    early = answered(coordinator, last_proposal(coordinator.tick(0)), vote(0, 10), vote(1, 900))
    coordinator.on_heartbeat(farewell(1), 1 * S)
    coordinator.on_command("commands", opened(train(), "2-0"))

    late = answered(coordinator, last_proposal(coordinator.tick(1 * S)), vote(0, 20))

    assert (early.effective_step, late.effective_step) == (908, 908)


def test_none_joins_a_run_that_is_paused() -> None:
    coordinator = replicas(0)
    paused = replica(0, 50)
    paused.busy = pb.BusyWith.BUSY_PAUSED
    coordinator.on_heartbeat(paused, 1 * S)
    coordinator.on_heartbeat(replica(1, 500), 1 * S)
    coordinator.on_command("commands", opened(germinate(), "1-0"))

    while_paused = answered(coordinator, last_proposal(coordinator.tick(1 * S)), vote(0, 50, held_step=50))
    coordinator.on_heartbeat(replica(0, 51), 2 * S)
    coordinator.on_command("commands", opened(train(), "2-0"))
    resumed = answered(coordinator, last_proposal(coordinator.tick(2 * S)), vote(0, 51), vote(1, 501))

    assert (while_paused.effective_step, resumed.effective_step) == (50, 509)


def test_a_new_leader_leaves_out_nobody_whom_it_could_not_have_heard_yet() -> None:
    said = replicas(0, 1)
    said.on_heartbeat(replica(0, 100, due=True), 0)
    heir = Coordinator("coordinator")
    heir.resume(said.tick(0).decisions)
    for second in range(1, 6):
        heir.on_heartbeat(replica(0, 100, due=True), second * S)

    early = heir.tick(6 * S - 1)
    outcome = heir.tick(6 * S)

    assert early.decisions == []
    _, abort, anew = outcome.decisions
    assert isinstance(abort, pb.BarrierAbort)
    assert [(each.worker, each.incarnation) for each in abort.evicted] == [("worker-1", 0)]
    assert list(last_proposal(outcome).roster) == ["worker-0"] and anew == last_proposal(outcome)


def test_a_runtime_ends_every_process_of_a_name_where_no_incarnation_is_known() -> None:
    abort = pb.BarrierAbort(version=1, round=1, roster_generation=1, evicted=[pb.EvictedProcess(worker="w")])

    with pytest.raises(EvictedError):
        Orders(worker="w", incarnation=8).on_abort(abort, delivery("2-0"))


def test_one_that_has_not_joined_yet_gives_no_vote_and_carries_out_what_is_decided() -> None:
    orders, boundary = Orders(worker="w"), Boundary()
    proposal = pb.BarrierProposal(version=1, round=3, roster_generation=1, roster=["v"])
    commit = commit_of(3, 40)

    said, settled = orders.on_proposal(proposal, delivery("1-0"))
    [order], _ = orders.on_commit(commit, delivery("2-0"))
    boundary.on_commit(order.commit)
    due = boundary.due(55)  # its step has gone by here

    assert (said, settled) == ([], [])
    assert due is not None and due.commit.round == 3
    assert not orders.was_asked(3)
    assert [done.entry_id for done in orders.on_applied(boundary.applied(due, []))] == ["2-0", "1-0"]


def test_a_round_that_was_open_when_it_began_is_carried_out_too() -> None:
    orders = Orders(worker="w", past=(5, 0))
    proposal = pb.BarrierProposal(version=1, round=3, roster_generation=1, roster=["v"])

    assert orders.is_past(proposal, delivery("5-0"))
    assert not orders.is_past(commit_of(3, 40), delivery("6-0"))
    [order], _ = orders.on_commit(commit_of(3, 40), delivery("6-0"))
    assert order.commit.unasked


def test_what_it_was_not_asked_about_holds_back_nothing_that_it_was_asked_about_later() -> None:
    """Its step may lie behind that: it was the others', who have left."""
    boundary = Boundary()
    boundary.on_commit(pb.CommitOrder(commit=commit_of(3, 21), unasked=True))
    boundary.on_commit(pb.CommitOrder(commit=commit_of(4, 9)))

    before = boundary.due(8)
    carried_out = [boundary.due(9), boundary.due(9)]

    assert before is None
    assert [order.commit.round for order in carried_out if order is not None] == [3, 4]


def test_a_pause_met_late_ends_with_that_of_the_others() -> None:
    boundary = Boundary()
    pause, resume = (
        pb.OpenedCommand(adaptation=pb.AdaptationCommand(pause_command=pb.PauseCommand(resume=resume)))
        for resume in (False, True)
    )
    boundary.on_commit(pb.CommitOrder(commit=commit_of(3, 40), commands=[pause], unasked=True))
    late = boundary.due(55)
    assert late is not None
    boundary.applied(late, [])
    held = boundary.hold().step
    boundary.on_commit(pb.CommitOrder(commit=commit_of(4, 40), commands=[resume]))

    order = boundary.due(55)

    assert held == 40
    assert order is not None
    boundary.applied(order, [])
    assert boundary.paused_before == 0


def commit_of(number: int, effective_step: int) -> pb.BarrierCommit:
    return pb.BarrierCommit(
        version=1,
        round=number,
        roster_generation=1,
        effective_step=effective_step,
        digest=barrier_digest(effective_step, [], []),
    )


def delivery(at: str) -> Delivery:
    return Delivery("decisions", "w", at, b"", 1, "w")
