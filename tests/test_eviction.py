"""A rank that hangs ends its whole process group, and only that: the rule, bare."""

from __future__ import annotations

import pytest

from esper.bus.group.delivery import Delivery
from esper.errors import EvictedError
from esper.leyline import contracts as pb
from esper.runtime.beside.orders import Orders
from esper.tamiyo.coordinator import Coordinator
from tests.rounds import germinate, heartbeat, opened, vote

S = 1_000_000_000


def group(now_ns: int = 0) -> Coordinator:
    coordinator = Coordinator("coordinator")
    beat(coordinator, now_ns, 0, 1)
    return coordinator


def beat(coordinator: Coordinator, now_ns: int, *ranks: int, incarnation: int = 1) -> None:
    for rank in ranks:
        coordinator.on_heartbeat(heartbeat(rank, incarnation=incarnation), now_ns)


def evicted(coordinator: Coordinator, now_ns: int) -> pb.BarrierAbort:
    *_, abort = coordinator.tick(now_ns).decisions
    assert isinstance(abort, pb.BarrierAbort)
    return abort


def test_five_seconds_after_a_rank_was_last_heard_the_whole_group_is_told_to_end() -> None:
    coordinator = group()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    coordinator.tick(0)
    coordinator.on_vote(vote(0), ("votes", "1-0"), 1 * S)
    beat(coordinator, 3 * S, 1)
    beat(coordinator, 7 * S, 0)

    early = coordinator.tick(8 * S - 1)
    outcome = coordinator.tick(8 * S)

    assert early.decisions == []
    [abort] = outcome.decisions
    assert isinstance(abort, pb.BarrierAbort)
    assert (abort.reason, list(abort.missing)) == (pb.ReasonCode.REASON_TIMEOUT, ["worker-1"])
    assert [(each.worker, each.incarnation) for each in abort.evicted] == [("worker-0", 1), ("worker-1", 1)]
    assert "worker-1 said nothing for 5 s" in abort.detail
    assert outcome.done == [("votes", "1-0")]
    assert coordinator.tick(60 * S).decisions == []


def test_one_that_is_away_is_given_up_after_twenty_seconds_also_where_others_have_longer() -> None:
    coordinator = Coordinator("coordinator", silence_ns=60 * S)
    away = heartbeat(1)
    away.busy = pb.BusyWith.BUSY_COMPILE
    coordinator.on_heartbeat(away, 0)
    beat(coordinator, 0, 0)
    beat(coordinator, 19 * S, 0)

    early = coordinator.tick(20 * S - 1)

    assert early.decisions == []
    assert "worker-1 said nothing" in evicted(coordinator, 20 * S).detail


def test_ranks_of_one_name_are_no_roster() -> None:
    coordinator = group()
    namesake = heartbeat(1)
    namesake.worker = "worker-0"

    coordinator.on_heartbeat(namesake, 1 * S)
    coordinator.on_command("commands", opened(germinate(), "1-0"))

    assert coordinator.tick(2 * S).decisions == []


def test_where_no_round_is_open_one_is_opened_to_decide_it() -> None:
    coordinator = group()
    beat(coordinator, 4 * S, 0)

    proposal, abort = coordinator.tick(5 * S).decisions

    assert isinstance(proposal, pb.BarrierProposal)
    assert isinstance(abort, pb.BarrierAbort)
    assert (proposal.round, abort.round, len(abort.evicted)) == (1, 1, 2)


def test_the_processes_that_come_after_them_are_another_roster_and_nothing_is_heard_of_the_old_ones() -> None:
    coordinator = group()
    beat(coordinator, 4 * S, 0)
    evicted(coordinator, 5 * S)
    coordinator.on_command("commands", opened(germinate(), "1-0"))

    beat(coordinator, 6 * S, 0, 1)
    none_is_left = coordinator.tick(6 * S)
    beat(coordinator, 7 * S, 0, 1, incarnation=2)
    [proposal] = coordinator.tick(7 * S).decisions

    assert none_is_left.decisions == []
    assert isinstance(proposal, pb.BarrierProposal)
    assert (proposal.round, proposal.roster_generation) == (2, 2)


def test_a_new_leader_knows_who_was_evicted_and_that_another_roster_forms() -> None:
    coordinator = group()
    beat(coordinator, 4 * S, 0)
    decisions = coordinator.tick(5 * S).decisions

    heir = Coordinator("coordinator")
    heir.resume(decisions)
    heir.on_command("commands", opened(germinate(), "1-0"))
    beat(heir, 6 * S, 0, 1)
    none_is_left = heir.tick(6 * S)
    beat(heir, 7 * S, 0, 1, incarnation=2)
    [proposal] = heir.tick(7 * S).decisions

    assert none_is_left.decisions == []
    assert isinstance(proposal, pb.BarrierProposal)
    assert (proposal.round, proposal.roster_generation) == (2, 2)


def test_a_group_that_is_being_started_anew_already_has_thirty_seconds_for_that() -> None:
    coordinators = [group(), group()]
    for each in coordinators:
        for second in range(4, 34):
            beat(each, second * S, 0, incarnation=2)  # the process of rank 1 has ended, and its heir is not heard yet

    early = [each.tick(34 * S - 1).decisions for each in coordinators]
    beat(coordinators[0], 34 * S - 1, 1, incarnation=2)
    whole, never_formed = (each.tick(34 * S).decisions for each in coordinators)

    assert (early, whole) == ([[], []], [])
    [_, abort] = never_formed
    assert isinstance(abort, pb.BarrierAbort)
    assert [(each.worker, each.incarnation) for each in abort.evicted] == [("worker-0", 2), ("worker-1", 1)]


def test_one_that_said_that_it_is_busy_has_twenty_seconds() -> None:
    coordinator = group()
    busy = heartbeat(1)
    busy.busy = pb.BusyWith.BUSY_COMPILE
    coordinator.on_heartbeat(busy, 1 * S)
    beat(coordinator, 20 * S, 0)

    assert coordinator.tick(21 * S - 1).decisions == []
    assert len(evicted(coordinator, 21 * S).evicted) == 2


def test_a_coordinator_that_could_hear_nobody_gives_nobody_up() -> None:
    coordinator = group()

    coordinator.on_deaf(9 * S)

    assert coordinator.tick(14 * S - 1).decisions == []
    assert len(evicted(coordinator, 14 * S).evicted) == 2


def test_a_round_that_was_open_while_nobody_could_be_heard_waits_for_votes_from_then_on() -> None:
    coordinator = group()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    opening = coordinator.tick(0)

    coordinator.on_deaf(9 * S)

    assert [type(said).__name__ for said in opening.decisions] == ["BarrierProposal"]
    assert coordinator.tick(14 * S - 1).decisions == []
    assert type(coordinator.tick(14 * S).decisions[0]).__name__ == "BarrierAbort"


@pytest.mark.parametrize("by_ns", [3600 * S, -3600 * S], ids=["set on", "set back"])
def test_whatever_the_clock_is_set_to_a_silent_rank_has_its_five_seconds_and_no_more(by_ns: int) -> None:
    coordinator, began_ns = Coordinator("coordinator"), 7200 * S
    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank), began_ns)
    coordinator.tick(began_ns)

    coordinator.on_clock_step(by_ns)
    coordinator.on_heartbeat(heartbeat(0), began_ns + by_ns + 4 * S)
    early = coordinator.tick(began_ns + by_ns + 5 * S - 1)
    outcome = coordinator.tick(began_ns + by_ns + 5 * S)

    assert early.decisions == []
    assert [type(said).__name__ for said in outcome.decisions] == ["BarrierProposal", "BarrierAbort"]


def test_a_round_ends_in_time_also_where_the_clock_is_set_back() -> None:
    coordinator, began_ns = Coordinator("coordinator"), 7200 * S
    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank, due=True), began_ns)
    coordinator.tick(began_ns)
    coordinator.on_heartbeat(heartbeat(0, 2, due=True), began_ns)
    [proposal] = coordinator.tick(began_ns).decisions
    later_ns = began_ns - 3600 * S + 5 * S

    coordinator.on_clock_step(-3600 * S)
    for rank in (0, 1):
        alive = heartbeat(rank)
        alive.repeated = True
        coordinator.on_heartbeat(alive, later_ns - S)

    [abort, *_] = coordinator.tick(later_ns).decisions
    assert isinstance(abort, pb.BarrierAbort) and abort.round == proposal.round == 1


def test_neither_a_worker_alone_nor_ranks_that_said_farewell_are_evicted() -> None:
    alone, ended = Coordinator("coordinator"), group()
    alone.on_heartbeat(heartbeat(world_size=1), 0)
    farewell = heartbeat(1)
    farewell.report.CopyFrom(pb.WorkerReport(worker="worker-1"))
    ended.on_heartbeat(farewell, 1 * S)

    assert [each.tick(60 * S).decisions for each in (alone, ended)] == [[], []]


def test_a_runtime_ends_the_process_that_is_named_and_no_other() -> None:
    abort = pb.BarrierAbort(
        version=1, round=1, roster_generation=1, evicted=[pb.EvictedProcess(worker="w", incarnation=7)], detail="why"
    )
    delivery = Delivery("decisions", "w", "1-0", b"", 1, "w")
    named, its_heir = Orders(worker="w", incarnation=7), Orders(worker="w", incarnation=8)

    told, settled = its_heir.on_abort(abort, delivery)
    with pytest.raises(EvictedError, match="why"):
        named.on_abort(abort, delivery)

    assert (told, settled) == ([pb.ToTrainer(abort=abort)], [delivery])


def test_a_rank_that_waits_for_a_decision_which_waits_for_one_in_a_step_is_let_go_after_one_second() -> None:
    coordinator = group()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    coordinator.tick(0)
    coordinator.on_vote(vote(0, 10), ("votes", "1-0"), 0)
    coordinator.on_heartbeat(heartbeat(0, 17), S // 2)
    goes_on = coordinator.tick(S)

    coordinator.on_heartbeat(heartbeat(0, 18), S)  # and its vote holds it there
    [abort, again] = coordinator.tick(S).decisions

    assert goes_on.decisions == []
    assert isinstance(abort, pb.BarrierAbort) and isinstance(again, pb.BarrierProposal)
    assert (abort.detail, list(abort.evicted)) == ("worker-1 said nothing for 1 s", [])


def test_a_rank_in_a_step_of_any_length_lives_though_its_round_ends() -> None:
    coordinator = group()
    coordinator.on_command("commands", opened(germinate(), "1-0"))
    coordinator.tick(0)
    for second in range(1, 60):
        beat(coordinator, second * S, 0)
        repeated = heartbeat(1)
        repeated.repeated = True
        coordinator.on_heartbeat(repeated, second * S)

    [abort, retry] = coordinator.tick(60 * S).decisions

    assert isinstance(abort, pb.BarrierAbort) and isinstance(retry, pb.BarrierProposal)
    assert (list(abort.missing), list(abort.evicted)) == (["worker-0", "worker-1"], [])
    assert abort.detail == "worker-1 said nothing for 5 s"
