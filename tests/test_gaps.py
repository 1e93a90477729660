"""Sequences that were used and never came are told once, by number."""

from __future__ import annotations

from hypothesis import given, strategies as st

from esper.leyline.envelope import Header, unpack
from esper.leyline.gaps import MAX_PRODUCERS, Gaps
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from tests.sealed import CONTROLLER, NOW_NS, command


def headers(last: int, producer: str = "controller-0") -> list[Header]:
    """Of sequences 0 to `last`; the first is of no use."""
    sealer = Sealer(CONTROLLER, Role.CONTROLLER, producer, incarnation=1, clock_ns=lambda: NOW_NS)
    return [unpack(sealer.seal(command())).header for _ in range(last)]


HEADERS = headers(40)


@given(st.sets(st.integers(1, 40), min_size=1))
def test_what_is_skipped_is_what_did_not_come(arrived: set[int]) -> None:
    gaps = Gaps()

    told = [number for sequence in sorted(arrived) for number in gaps.note(HEADERS[sequence - 1])]

    assert told == [number for number in range(1, max(arrived)) if number not in arrived]


def test_a_repeat_is_no_gap() -> None:
    gaps = Gaps()
    gaps.note(HEADERS[0])

    assert [list(gaps.note(header)) for header in (HEADERS[1], HEADERS[0], HEADERS[1], HEADERS[2])] == [[], [], [], []]


def test_it_is_told_across_a_restart() -> None:
    before, after = Gaps(), Gaps()
    before.note(HEADERS[0])

    after.load(before.changed())

    assert list(after.note(HEADERS[3])) == [2, 3]


def test_what_fell_back_is_missing_again() -> None:
    gaps = Gaps()
    gaps.note(HEADERS[0])
    stored = gaps.changed()
    gaps.note(HEADERS[1])

    gaps.load(stored)

    assert list(gaps.note(HEADERS[2])) == [2]


def test_producers_that_have_said_nothing_for_long_are_forgotten_and_not_accused() -> None:
    gaps = Gaps()
    gaps.note(HEADERS[0])
    for number in range(MAX_PRODUCERS):
        gaps.note(headers(1, f"controller-{number + 1}")[0])

    assert list(gaps.note(HEADERS[9])) == []
    assert b"" in gaps.changed().values()


def test_who_was_forgotten_and_is_not_on_record_either_is_accused_again() -> None:
    gaps = Gaps()
    for number in range(MAX_PRODUCERS + 1):
        gaps.note(headers(1, f"controller-{number + 1}")[0])

    gaps.load({})

    assert list(gaps.note(HEADERS[2])) == [1, 2]
