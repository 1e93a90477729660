"""What a trainer sheds while its rows are not stored: what tells least, the oldest of that, and none uncounted."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from esper.leyline import contracts as pb
from esper.leyline.levels import rank
from esper.tolaria.rows.rows import IN_FLIGHT, Rows

DEBUG, INFO, WARNING, CRITICAL = (
    pb.TelemetryLevel.TELEMETRY_DEBUG,
    pb.TelemetryLevel.TELEMETRY_INFO,
    pb.TelemetryLevel.TELEMETRY_WARNING,
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


def test_rows_wait_here_while_enough_are_under_way_but_for_what_is_critical() -> None:
    rows = Rows(incarnation=1)
    for step in range(IN_FLIGHT + 2):
        rows.add(step, step, {"loss": 1.0})
    assert steps(rows) == list(range(IN_FLIGHT))

    rows.add(IN_FLIGHT + 2, 0, {"loss": 1.0}, CRITICAL)
    for step in range(40):
        rows.add(IN_FLIGHT + 3 + step, 0, {"loss": torch.tensor(math.nan)})
    urgent = steps(rows)
    rows.stored(IN_FLIGHT)

    assert urgent == [IN_FLIGHT + 2, IN_FLIGHT + 3]
    assert steps(rows) == [IN_FLIGHT, IN_FLIGHT + 1, *range(IN_FLIGHT + 4, IN_FLIGHT + 43)]
    rows.stored(IN_FLIGHT + 43)
    assert rows.unstored == 0


@pytest.mark.parametrize("num_frames", [1, 16])
def test_no_warning_is_shed_where_there_is_room_for_all_of_them(num_frames: int) -> None:
    rows = Rows(incarnation=1, capacity=512, most_under_way=64)
    num_handed = num_stored = 0
    for step in range(12_000):
        rows.add(step, step, {"loss": 1.0}, WARNING if step % 4 == 0 else DEBUG)
        for _ in range(num_frames if step % (64 * num_frames) == 0 else 0):  # stored is half of what is made, in bursts
            num_handed += len(steps(rows))
            num_stored = min(num_handed, num_stored + 32)
            rows.stored(num_stored)
        num_handed += len(steps(rows))

    assert rows.shed_by_level.keys() == {DEBUG}
    assert rows.shed > 12_000 / 2 - 1_024


def test_under_load_rows_go_out_in_whole_frames() -> None:
    rows = Rows(incarnation=1, most_under_way=64)
    for step in range(64):
        rows.add(step, step, {"loss": 1.0})
    steps(rows)
    for step in range(64, 128):
        rows.add(step, step, {"loss": 1.0})

    sizes = []
    for stored in range(1, 65):
        rows.stored(stored)
        sizes.append(len(steps(rows)))

    assert [size for size in sizes if size] == [32, 32]


class Buffer(RuleBasedStateMachine):
    """Rows made, handed over, stored, lost with their runtime, in any order: each is counted or shed."""

    @initialize(capacity=st.integers(1, 12), most=st.sampled_from([1, 4, IN_FLIGHT]))
    def begin(self, capacity: int, most: int) -> None:
        self.rows = Rows(incarnation=1, capacity=capacity, most_under_way=most)
        self.handed: dict[int, int] = {}  # step by sequence, as the tiers know it
        self.left: dict[int, tuple[int, int]] = {}  # of each step: how many were made when it first went, its rank
        self.went: list[tuple[int, int]] = []  # how many were made when one was shed, and its rank

    @rule(level=st.sampled_from(LEVELS), tells=st.booleans(), name=st.sampled_from(["loss", "accuracy"]))
    def make(self, level: pb.TelemetryLevel, tells: bool, name: str) -> None:
        before = self.rows.shed_by_level.copy()
        if tells:
            self.rows.note(INFO, f"step {self.rows.made}")
        self.rows.add(self.rows.made, 0, {name: 1.0}, level)
        self.went += [(self.rows.made, rank(shed)) for shed in self.rows.shed_by_level - before]

    @rule(num=st.integers(1, 3))
    def step_plainly(self, num: int) -> None:
        before, plain = self.rows.shed_by_level.copy(), self.rows.plain
        for _ in range(num):
            plain.next_step = self.rows.made + 1
            plain.values += 1.0, 0.1, 2.0
            plain.ended_s.append(0.0)
        assert self.rows.shed >= before.total()
        self.went += [(self.rows.made, rank(shed)) for shed in self.rows.shed_by_level - before]

    @rule()
    def hand_over(self) -> None:
        if (table := self.rows.table()) is not None:
            self._take(table)

    def _take(self, table: pb.TelemetryRows) -> None:
        for index, step in enumerate(table.global_step):
            number = table.first_sequence + index
            assert self.handed.setdefault(number, step) == step
            self.left.setdefault(step, (self.rows.made, rank(table.level[index] if table.level else INFO)))

    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        self.rows.stored(data.draw(st.integers(0, max(self.handed, default=0))))

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
        """With the runtime back, all that is left is handed over: made = counted + shed, the least important of it."""
        if hasattr(self, "rows"):
            self.rows.send_again()
            while (table := self.rows.table()) is not None:
                self._take(table)
                self.rows.stored(max(self.handed))
            assert self.rows.made == len(self.handed) + self.rows.shed
            for num_made, shed in self.went:
                there = [mine for step, (when, mine) in self.left.items() if step < num_made <= when]
                assert all(mine >= shed for mine in there), f"of {there} one of rank {shed} was shed"


TestBuffer = Buffer.TestCase
TestBuffer.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
