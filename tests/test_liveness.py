"""Whose newest heartbeat counts where a controller waits for every rank."""

from __future__ import annotations

from esper.leyline import contracts as pb
from esper.leyline.seal import Opened
from esper.runtime.watching.liveness import AWAY_MS, GONE_MS, Liveness, complete
from tests.rounds import header, heartbeat

HOUR_MS, HOUR_NS = 3_600_000, 3_600_000_000_000
NOW_NS = 1_700_000_000 * 1_000_000_000


def said(beat: pb.Heartbeat, at_ms: int, *, incarnation: int = 1, sealed_ms: int = 0) -> Opened:
    issued_at_ns = NOW_NS + (sealed_ms or at_ms) * 1_000_000
    sealed = header()._replace(incarnation=incarnation, sequence=at_ms, issued_at_ns=issued_at_ns)
    return Opened(sealed, beat, b"", f"{at_ms}-0", False)


def replica(rank: int, at_ms: int, *, ended: bool = False) -> Opened:
    beat = heartbeat(rank, world_size=1)
    if ended:
        beat.report.CopyFrom(pb.WorkerReport(worker=beat.worker))
    return said(beat, at_ms)


def heard(*messages: Opened) -> Liveness:
    found = Liveness()
    for message in messages:
        found.note(message)
    return found


def test_a_clock_that_was_set_back_hides_no_heartbeat() -> None:
    before, after = heartbeat(0, 10), heartbeat(0, 20)
    before.time_ns, after.time_ns = NOW_NS, NOW_NS - HOUR_NS

    assert heard(said(before, 1), said(after, 2)).beats["worker-0"].step == 20


def test_a_heartbeat_that_is_added_again_changes_nothing() -> None:
    first, second = said(heartbeat(0, 10), 1), said(heartbeat(0, 20), 2)

    found = heard(first, second, first._replace(entry_id="3-0"))

    assert found.beats["worker-0"].step == 20


def test_of_two_processes_of_one_name_the_clock_says_which_is_the_newer() -> None:
    old, new = heartbeat(0, 50), heartbeat(0, 1)

    found = heard(said(new, 2, incarnation=2), said(old, 3, incarnation=1, sealed_ms=1))

    assert found.beats["worker-0"].step == 1


def test_a_process_that_begins_on_a_machine_whose_clock_is_behind_is_seen_at_once() -> None:
    old, new = heartbeat(0, 50), heartbeat(0, 1)
    old.time_ns, new.time_ns = NOW_NS, NOW_NS - HOUR_NS

    found = heard(said(old, 1, incarnation=1), said(new, 2, incarnation=2))

    assert found.beats["worker-0"].step == 1


def test_a_process_that_begins_behind_a_clock_that_was_set_back_is_seen_at_once() -> None:
    old, new = heartbeat(0, 50), heartbeat(0, 1)
    behind = said(new, HOUR_MS + 1, incarnation=2, sealed_ms=1)  # numbers of entries go on where they were

    found = heard(said(old, HOUR_MS, incarnation=1), behind._replace(clock_suspect=True))

    assert found.beats["worker-0"].step == 1


def test_a_replica_that_has_said_its_last_words_is_waited_for_no_more() -> None:
    found = heard(replica(0, 1), replica(1, 2, ended=True), replica(0, 3))

    assert set(found.present) == {"worker-0"} and set(found.beats) == {"worker-0", "worker-1"}


def test_a_replica_is_gone_once_it_is_silent_for_ten_seconds_that_others_are_not() -> None:
    late = heard(replica(0, 1), replica(1, 1), replica(0, 1 + GONE_MS))
    gone = heard(replica(0, 1), replica(1, 1), replica(0, 2 + GONE_MS))

    assert set(late.present) == {"worker-0", "worker-1"}
    assert set(gone.present) == {"worker-0"}


def test_a_replica_that_said_that_it_compiles_is_gone_after_four_times_as_long() -> None:
    compiling = heartbeat(1, world_size=1)
    compiling.busy = pb.BusyWith.BUSY_COMPILE
    late = heard(replica(0, 1), said(compiling, 1), replica(0, 1 + AWAY_MS))
    gone = heard(replica(0, 1), said(compiling, 1), replica(0, 2 + AWAY_MS))

    assert set(late.present) == {"worker-0", "worker-1"}
    assert set(gone.present) == {"worker-0"}


def test_where_all_replicas_have_ended_their_last_words_stay() -> None:
    found = heard(replica(0, 1, ended=True), replica(1, 2, ended=True))

    assert set(found.present) == {"worker-0", "worker-1"}


def test_a_group_is_waited_for_whole_also_where_a_rank_is_silent() -> None:
    found = heard(said(heartbeat(0), 1), said(heartbeat(1), 1), said(heartbeat(0), 2 + GONE_MS))

    assert set(found.present) == {"worker-0", "worker-1"}


def test_ranks_of_a_group_that_was_larger_before_are_not_waited_for() -> None:
    before = [said(heartbeat(rank, world_size=3), 1) for rank in range(3)]
    now = [said(heartbeat(rank, world_size=2), 5, incarnation=2) for rank in range(2)]

    assert set(heard(*before, *now).present) == {"worker-0", "worker-1"} and complete(heard(*before, *now).present)
