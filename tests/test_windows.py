"""Windows close at 32 items or by the clock, and sequence numbers are met once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from esper.narset.sequences import MAX_STRETCHES, SequenceWindow
from esper.narset.state import TierState
from esper.narset.window import MOST_HELD, Windows


def windows(*sizes: int) -> Windows[int]:
    """Windows that hold messages of these sizes, all taken in at 100 s; they are patient for 10 ms."""
    made: Windows[int] = Windows(0.010)
    numbers = iter(range(sum(sizes)))
    for size in sizes:
        made.add([next(numbers) for _ in range(size)], 100.0)
    return made


def test_a_full_window_is_due_at_once_and_is_not_partial() -> None:
    full = windows(32)

    assert full.wait_s(100.0) == 0
    assert [(len(window.items), window.partial) for window in full.take()] == [(32, False)]
    assert full.wait_s(100.0) is None


def test_a_partial_window_is_due_once_its_first_message_has_waited_and_is_marked() -> None:
    started = windows(20)

    assert started.wait_s(100.0) == pytest.approx(0.010)
    assert started.wait_s(100.004) == pytest.approx(0.006)
    assert started.wait_s(100.020) == 0
    assert [(len(window.items), window.partial) for window in started.take()] == [(20, True)]


def test_a_message_across_a_border_is_taken_with_both_windows() -> None:
    straddled = windows(20, 20)

    assert straddled.wait_s(100.0) == pytest.approx(0.010)
    taken = straddled.take()
    assert [window.items for window in taken] == [list(range(32)), list(range(32, 40))]
    assert [(window.num_messages, window.partial) for window in taken] == [(2, False), (0, True)]


def test_windows_that_never_fit_their_messages_are_not_held_for_ever() -> None:
    misfits = windows(*[31] * (MOST_HELD + 5))

    assert misfits.wait_s(100.0) == 0


def test_a_message_without_items_waits_with_the_others() -> None:
    empty = windows(0)

    assert empty.wait_s(100.0) == pytest.approx(0.010)
    assert [(window.items, window.num_messages) for window in empty.take()] == [([], 1)]


@given(st.lists(st.integers(1, 60), max_size=80), st.data())
def test_a_number_is_new_once_whatever_the_order_and_across_a_restart(numbers: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(numbers)))
    met, window = set[int](), SequenceWindow()

    for index, number in enumerate(numbers):
        if index == cut:
            window = SequenceWindow(window.dump())
        assert window.admit(number) == (number not in met)
        met.add(number)

    assert window.highest == max(numbers, default=0)


def test_a_hole_is_declared_once_after_five_seconds_and_stays_open() -> None:
    window = SequenceWindow()
    for number in (1, 2, 6, 7, 9):
        window.admit(number)

    assert window.declare(10.0, 5.0) == 0
    assert window.first_hole_s == 10.0
    window.admit(8)
    window.admit(20)
    assert window.declare(14.9, 5.0) == 0
    assert window.declare(15.0, 5.0) == 3  # 3, 4, 5; what is above 9 was seen later
    assert SequenceWindow(window.dump()).declare(15.0, 5.0) == 0
    assert window.declare(19.9, 5.0) == 10  # 10 to 19
    assert window.first_hole_s is None
    assert window.admit(4)
    assert not window.admit(4)


def test_a_hole_that_fills_in_time_is_not_declared() -> None:
    window = SequenceWindow()
    for number in (1, 3):
        window.admit(number)
    window.declare(10.0, 5.0)

    window.admit(2)

    assert window.declare(16.0, 5.0) == 0
    assert window.mark == 3


def test_the_record_stays_bounded_and_a_hole_given_up_is_declared() -> None:
    window = SequenceWindow()

    for number in range(2, 2 * MAX_STRETCHES + 7, 2):
        window.admit(number)

    assert len(window.dump()) <= 24 + 16 * MAX_STRETCHES
    assert window.declare(0.0, 5.0) == 3  # 1, 3, 5
    assert not window.admit(3)


def test_dropped_packets_are_counted_by_how_much_the_source_says_more() -> None:
    window = SequenceWindow()

    assert [window.drop(shed) for shed in (0, 5, 3, 9)] == [0, 5, 0, 4]


def test_records_that_went_different_ways_from_one_point_are_told_apart() -> None:
    older = {name.encode(): value for name, value in TierState("source/", {}).changed().items()}
    one, other = TierState("source/", older), TierState("source/", older)

    one.changed()
    other.changed()

    assert one.expected != other.expected
    assert older[b"version"] not in (one.expected, other.expected)


def test_a_window_admits_a_shuffled_sequence_whole() -> None:
    numbers = list(range(1, 501))
    random.Random(3).shuffle(numbers)
    window = SequenceWindow()

    assert all(window.admit(number) for number in numbers)

    assert (window.mark, len(window.dump())) == (500, 24)
