"""Redelivery, replay and duplicate are told apart, also after a restart, in bounded memory."""

from __future__ import annotations

from typing import NoReturn

import pytest
from hypothesis import given, strategies as st

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.envelope import DeadlineKind, Header
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Sealer
from esper.leyline.window import CHUNK, NUM_SLOTS, RECORD, SPAN, STRIDE, Window
from tests.sealed import CONTROLLER, ENTRY, NOW_MS, NOW_NS, command, controller, refusal, worker_opener

ANOTHER_ENTRY = f"{NOW_MS}-1"


def header(sequence: int, producer: str = "p", incarnation: int = 1, target: str = "*") -> Header:
    return Header(
        1,
        Domain.COMMAND,
        101,
        incarnation,
        sequence,
        0,
        DeadlineKind.NONE,
        0,
        0,
        "run",
        Role.CONTROLLER,
        producer,
        target,
    )


def reason(guard: ReplayGuard, head: Header, entry_id: str, digest: bytes) -> int:
    with pytest.raises(RefusedError) as refused:
        guard.note(head, entry_id, digest)
    return refused.value.reason


def sealed_at(at_ns: int) -> bytes:
    """The first sequence of one incarnation."""
    return Sealer(CONTROLLER, Role.CONTROLLER, "c", incarnation=9, clock_ns=lambda: at_ns).seal(command())


def restarted(guard: ReplayGuard) -> ReplayGuard:
    """A guard of a new process, from what the old one persisted."""
    fresh = ReplayGuard()
    fresh.load(guard.changed())
    return fresh


def test_the_same_entry_again_is_a_redelivery() -> None:
    opener, data = worker_opener(), controller().seal(command())

    first = opener.open(data, ENTRY, NOW_MS)
    second = opener.open(data, ENTRY, NOW_MS)

    assert (first.redelivered, second.redelivered) == (False, True)
    assert first.digest == second.digest


def test_the_same_bytes_under_another_entry_are_replayed() -> None:
    opener, data = worker_opener(), controller().seal(command())
    opener.open(data, ENTRY, NOW_MS)

    assert refusal(opener, data, ANOTHER_ENTRY) == "REASON_REPLAYED"


def test_the_same_sequence_sealed_anew_is_a_duplicate() -> None:
    first, anew = sealed_at(NOW_NS), sealed_at(NOW_NS + 1)
    opener = worker_opener()
    opener.open(first, ENTRY, NOW_MS)

    assert refusal(opener, anew, ANOTHER_ENTRY) == "REASON_DUPLICATE"


def test_producers_incarnations_and_targets_have_windows_of_their_own() -> None:
    guard = ReplayGuard()
    heads = [
        header(1),
        header(1, incarnation=2),
        header(1, producer="q"),
        header(1, target="t"),
        header(1, producer="p/*", target="x"),
        header(1, producer="p", target="*/x"),
    ]

    repeats = [guard.note(head, f"{NOW_MS}-{i}", bytes([i]) * 32) for i, head in enumerate(heads)]
    fresh = restarted(guard)

    assert repeats == [False] * 6
    assert [fresh.note(head, f"{NOW_MS}-{i}", bytes([i]) * 32) for i, head in enumerate(heads)] == [True] * 6


def test_a_restart_forgets_nothing_that_was_persisted() -> None:
    guard = ReplayGuard()
    guard.note(header(1), "5-0", b"a" * 32)

    fresh = restarted(guard)

    assert fresh.note(header(1), "5-0", b"a" * 32)
    assert reason(fresh, header(1), "6-0", b"a" * 32) == pb.ReasonCode.REASON_REPLAYED
    assert reason(fresh, header(1), "6-0", b"b" * 32) == pb.ReasonCode.REASON_DUPLICATE
    assert not fresh.note(header(2), "6-0", b"b" * 32)


def test_what_was_noted_but_not_persisted_is_new_again_after_a_crash() -> None:
    guard, stored = ReplayGuard(), ReplayGuard()
    guard.note(header(1), "5-0", b"a" * 32)
    stored.load(guard.changed())

    guard.note(header(2), "6-0", b"b" * 32)

    assert not stored.note(header(2), "6-0", b"b" * 32)


def test_only_what_changed_is_handed_out_to_be_persisted() -> None:
    guard = ReplayGuard()
    for sequence in range(1, 500):
        guard.note(header(sequence), f"{sequence}-0", bytes(32))
    whole = guard.changed()

    guard.note(header(500), "500-0", bytes(32))
    part = guard.changed()

    assert len(part) == 1
    assert sum(map(len, part.values())) < 2_100 < sum(map(len, whole.values()))
    assert guard.changed() == {}


def test_below_the_window_what_was_met_is_replayed_and_what_was_not_is_new() -> None:
    guard = ReplayGuard()
    late = 1_000  # added, as all others, but handed over to nobody until its producer was far ahead
    for sequence in range(1, 4 * SPAN):
        if sequence != late:
            guard.note(header(sequence), f"{sequence}-0", bytes(32))

    assert reason(guard, header(late - 1), "999999-0", bytes(32)) == pb.ReasonCode.REASON_REPLAYED
    assert not guard.note(header(late), f"{late}-0", bytes(32))
    fresh = restarted(guard)
    assert reason(fresh, header(late), "999999-0", bytes(32)) == pb.ReasonCode.REASON_REPLAYED
    assert reason(fresh, header(late + 1), "999999-0", bytes(32)) == pb.ReasonCode.REASON_REPLAYED


def test_a_window_stays_bounded_in_memory_and_in_what_it_persists() -> None:
    guard, stored = ReplayGuard(), dict[str, bytes]()
    for sequence in range(1, 20_001):
        guard.note(header(sequence), f"{sequence}-0", bytes(32))
        if sequence % 37 == 0:
            persist(stored, guard)
    persist(stored, guard)

    fresh = ReplayGuard()
    fresh.load(stored)

    assert len(stored) <= NUM_SLOTS + 1
    assert sum(map(len, stored.values())) < 40 * SPAN
    assert fresh.note(header(20_000), "20000-0", bytes(32))
    assert fresh.note(header(20_000 - SPAN + 64), f"{20_000 - SPAN + 64}-0", bytes(32))
    assert reason(fresh, header(12_000), "12000-0", bytes(32)) == pb.ReasonCode.REASON_REPLAYED


def test_a_slot_that_is_used_anew_at_once_holds_nothing_of_before() -> None:
    guard, stored, later = ReplayGuard(), dict[str, bytes](), CHUNK * NUM_SLOTS + 2
    for sequence in (1, later):
        guard.note(header(sequence), f"{sequence}-0", bytes(32))
        persist(stored, guard)

    fresh = ReplayGuard()
    fresh.load(stored)

    assert fresh.note(header(later), f"{later}-0", bytes(32))
    assert not fresh.note(header(later - 1), f"{later - 1}-0", bytes(32))


def test_more_than_a_window_noted_backwards_before_it_is_persisted_is_all_known_after_a_restart() -> None:
    guard = ReplayGuard()
    backwards = [*range(SPAN + STRIDE - 1, 0, -1), SPAN + STRIDE]
    for sequence in backwards:
        guard.note(header(sequence), f"{sequence}-0", bytes(32))

    fresh = restarted(guard)

    for sequence in backwards:
        assert reason(fresh, header(sequence), "9999-0", bytes(32)) == pb.ReasonCode.REASON_REPLAYED


class NeverWalked(dict[int, bytes]):
    """Answers what is in it; whoever asks for all of that fails."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("all records were walked through")

    def items(self) -> NoReturn:
        raise AssertionError("all records were walked through")


def test_the_floor_moves_without_a_walk_through_all_that_lies_above_it() -> None:
    window = Window([])
    window.records = NeverWalked()
    for sequence in range(1, 2 * SPAN):
        window.note(sequence, RECORD.pack(sequence, 0, bytes(8)))

    slots = window.changes()

    assert window.floor > SPAN // 2 and len(window.records) <= SPAN + STRIDE
    assert NUM_SLOTS in slots  # what says that all below the floor was met


def persist(stored: dict[str, bytes], guard: ReplayGuard) -> None:
    """What a settlement does with it: an empty value deletes."""
    for field, value in guard.changed().items():
        if value:
            stored[field] = value
        else:
            stored.pop(field, None)


def test_a_forgotten_window_is_emptied_where_it_was_persisted() -> None:
    guard = ReplayGuard()
    guard.note(header(1, producer="old"), "1000-0", bytes(32))
    guard.note(header(1, producer="new"), "302000-0", bytes(32))
    stored = guard.changed()

    guard.forget(before_ms=302_000)
    stored |= guard.changed()
    fresh = ReplayGuard()
    fresh.load(stored)

    assert sorted(map(bool, stored.values())) == [False, True]
    assert fresh.note(header(1, producer="new"), "302000-0", bytes(32))
    assert not fresh.note(header(1, producer="old"), "303000-0", bytes(32))


FAR = st.one_of(st.integers(1, 200), st.integers(1, 3 * SPAN))


@given(st.lists(st.tuples(FAR, st.integers(0, 3), st.sampled_from([b"a", b"b"])), max_size=60))
def test_restarted_at_every_message_it_answers_as_a_plain_table_would(arrivals: list[tuple[int, int, bytes]]) -> None:
    stored, table = dict[str, bytes](), dict[int, tuple[int, bytes]]()
    for sequence, entry, digest in arrivals:
        guard = ReplayGuard()
        guard.load(stored)
        try:
            answer = "redelivered" if guard.note(header(sequence), f"7-{entry}", digest * 32) else "new"
        except RefusedError as error:
            answer = pb.ReasonCode.Name(error.reason)
        persist(stored, guard)

        assert answer in expected(table, sequence, (entry, digest))
        table.setdefault(sequence, (entry, digest))


def expected(table: dict[int, tuple[int, bytes]], sequence: int, met: tuple[int, bytes]) -> set[str]:
    """Exactly, by all that was ever met; far below the newest it may not be known any more as what."""
    if sequence not in table:
        return {"new"}
    if sequence < max(table) - SPAN:
        return {"REASON_REPLAYED"} | ({"redelivered"} if table[sequence] == met else {"REASON_DUPLICATE"})
    if table[sequence] == met:
        return {"redelivered"}
    return {"REASON_REPLAYED" if table[sequence][1] == met[1] else "REASON_DUPLICATE"}
