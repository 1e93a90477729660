"""Two records of one producer joined: what either has met is met, and nothing else."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from esper.leyline.merging import absorb
from esper.leyline.replay import ReplayGuard
from esper.leyline.window import BELOW, RECORD, Window

NAME = ("controller", "p", 1, "*")
STRETCHES = st.lists(st.tuples(st.integers(1, 12_000), st.integers(1, 400)), max_size=4)


def record(sequence: int) -> bytes:
    return RECORD.pack(1_000 + sequence, 0, b"s" * 8)


def guard_of(stretches: list[tuple[int, int]]) -> tuple[ReplayGuard, set[int]]:
    """One that has met these, in order, and persisted them."""
    guard, met = ReplayGuard(), set[int]()
    for start, length in sorted(stretches):
        for sequence in range(start, start + length):
            guard.window_named(NAME).note(sequence, record(sequence))
            met.add(sequence)
    return guard, met


def knows(window: Window, sequence: int) -> bool:
    return window.note(sequence, RECORD.pack(5, 5, b"another!")) is not None


@settings(max_examples=40, deadline=None)
@given(STRETCHES, STRETCHES, st.lists(st.integers(1, 12_500), min_size=20, max_size=60, unique=True))
def test_what_either_has_met_is_met_and_persisted_so(
    one: list[tuple[int, int]], other: list[tuple[int, int]], asked: list[int]
) -> None:
    guard, met = guard_of(one)
    beside, met_beside = guard_of(other)
    persisted = guard.changed()

    absorb(guard, beside.changed())

    persisted |= guard.unsettled()
    assert guard.unsettled() == guard.changed()
    again = ReplayGuard()
    again.load(persisted)
    for sequence in asked:
        expected = sequence in met | met_beside
        assert knows(guard.window_named(NAME), sequence) == expected
        assert knows(again.window_named(NAME), sequence) == expected


def test_its_own_entry_stays_where_both_have_met_a_sequence() -> None:
    guard, beside = ReplayGuard(), ReplayGuard()
    guard.window_named(NAME).note(7, record(7))
    beside.window_named(NAME).note(7, RECORD.pack(9, 9, b"elsewhere"[:8]))

    absorb(guard, beside.changed())

    assert guard.window_named(NAME).note(7, record(7)) == record(7) != BELOW
