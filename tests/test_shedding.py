"""What a trainer sheds while its rows are not stored: what tells least, the oldest of that, and none uncounted."""

from __future__ import annotations

import math
from collections import Counter

import torch
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from esper.leyline import contracts as pb
from esper.tolaria.rows import IN_FLIGHT, Rows

DEBUG, INFO, CRITICAL = (
    pb.TelemetryLevel.TELEMETRY_DEBUG,
    pb.TelemetryLevel.TELEMETRY_INFO,
    pb.TelemetryLevel.TELEMETRY_CRITICAL,
)
LEVELS = [pb.TelemetryLevel.ValueType(number) for number in pb.TelemetryLevel.values()]


def steps(rows: Rows) -> list[int]:
    """Of every row that is handed over now."""
    found: list[int] = []
    while (table := rows.table()) is not None:
        found += table.global_step
    return found


def test_the_oldest_debug_row_goes_first_then_the_oldest_of_the_next_level() -> None:
    rows = Rows(incarnation=1, capacity=4)
    for step, level in enumerate([INFO, DEBUG, INFO, DEBUG, INFO, INFO, INFO, DEBUG]):
        rows.add(step, step, {"loss": 1.0}, level)

    # Shed are 1 and 3 for 4 and 5, then 0 for 6; 7 is less than any that waits.
    assert steps(rows) == [2, 4, 5, 6]
    assert (rows.made, rows.shed) == (8, 4)
    assert rows.shed_by_level == Counter({DEBUG: 3, INFO: 1})


def test_what_a_row_that_was_shed_told_of_goes_on_with_the_next() -> None:
    rows = Rows(incarnation=1, capacity=1)
    rows.note(INFO, "first")
    rows.add(1, 1, {"loss": 1.0})
    rows.note(CRITICAL, "second")
    rows.add(2, 2, {"loss": 1.0})

    table = rows.table()

    assert table is not None
    assert [(event.row, event.description) for event in table.events] == [(0, "first"), (0, "second")]


def test_rows_wait_here_while_enough_are_under_way_unless_one_is_urgent() -> None:
    rows = Rows(incarnation=1)
    for step in range(IN_FLIGHT):
        rows.add(step, step, {"loss": 1.0})
    assert len(steps(rows)) == IN_FLIGHT

    rows.add(IN_FLIGHT, 0, {"loss": 1.0})
    calm = steps(rows)
    for step in range(40):
        rows.add(IN_FLIGHT + 1 + step, 0, {"loss": torch.tensor(math.nan)})
    urgent = steps(rows)

    assert calm == []
    assert len(urgent) == 41
    rows.stored(IN_FLIGHT + 41)
    assert rows.unstored == 0


class Buffer(RuleBasedStateMachine):
    """Rows made, handed over, stored, lost with their runtime, in any order: each is counted or shed."""

    @initialize(capacity=st.integers(1, 12))
    def begin(self, capacity: int) -> None:
        self.rows = Rows(incarnation=1, capacity=capacity)
        self.stored: dict[int, int] = {}  # on the stream: step by sequence, as the tiers know it
        self.handed: dict[int, int] = {}
        self.shed = 0

    @rule(level=st.sampled_from(LEVELS), tells=st.booleans(), name=st.sampled_from(["loss", "accuracy"]))
    def make(self, level: pb.TelemetryLevel, tells: bool, name: str) -> None:
        if tells:
            self.rows.note(INFO, f"step {self.rows.made}")
        self.rows.add(self.rows.made, 0, {name: 1.0}, level)

    @rule()
    def hand_over(self) -> None:
        if (table := self.rows.table()) is not None:
            for index, step in enumerate(table.global_step):
                number = table.first_sequence + index
                assert self.handed.setdefault(number, step) == step
            self.shed = table.shed

    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        last = data.draw(st.integers(0, max(self.handed, default=0)))
        self.stored |= {number: step for number, step in self.handed.items() if number <= last}
        self.rows.stored(last)

    @rule()
    def lose_runtime(self) -> None:
        self.rows.send_again()

    @invariant()
    def packets_are_counted_or_shed(self) -> None:
        if hasattr(self, "rows"):
            waiting = self.rows.made - self.rows.shed - len(self.handed)
            assert 0 <= waiting <= self.rows.capacity
            assert sorted(self.handed) == list(range(1, len(self.handed) + 1))
            assert len(set(self.handed.values())) == len(self.handed)
            assert self.rows.shed == self.rows.shed_by_level.total()

    def teardown(self) -> None:
        """With the runtime back, all that is left is handed over: made = counted + shed."""
        if hasattr(self, "rows"):
            self.rows.send_again()
            while (table := self.rows.table()) is not None:
                for index, step in enumerate(table.global_step):
                    assert self.handed.setdefault(table.first_sequence + index, step) == step
            assert self.rows.made == len(self.handed) + self.rows.shed


TestBuffer = Buffer.TestCase
TestBuffer.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
