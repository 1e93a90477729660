"""Measurements of the training loop, kept until they are stored."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from esper.leyline import contracts as pb
from esper.leyline.levels import CRITICAL, INFO, highest, rank
from esper.leyline.validate.bounds import NUM_EVENTS
from esper.tolaria.rows.dropped_events import EventBuffer
from esper.tolaria.rows.plain import Block, Plain, Row, Value

IN_FLIGHT = 1024
"""Rows handed over and not stored yet; more of them wait here, where they can be shed by their level."""
FEWEST = 32  # rows for which there must be room: as many as a frame holds, so that frames stay whole under load
MOST_EVENTS = 1024  # of one table: its frame on the link has an end, and what a receipt says may be long
LOOK_EVERY = 32  # rows that wait: to read a tensor is to wait for the device


@dataclass
class Rows:
    """One row a step, numbered from 1 without a gap as they are handed over, kept until Redis has acknowledged them.

    Where `capacity` rows wait, one of the lowest level among those not handed over is shed, the oldest of these first,
    and counted: made = handed over + waiting + shed. What it told of goes on with the next row. Tensors are read in one
    transfer for many rows, never one by one.

    No more than `most_under_way` are handed over and not stored, so that the others can be shed; what is critical is
    handed over all the same, before rows that were made earlier.
    """

    incarnation: int
    capacity: int = 8192
    most_under_way: int = IN_FLIGHT
    shed_by_level: Counter[pb.TelemetryLevel] = field(default_factory=Counter)
    non_finite: int = 0
    last: dict[str, float] = field(default_factory=dict)
    # Made as well: rows behind all others, to which steps add by themselves.
    plain: Plain = field(default_factory=Plain)
    _made: int = 0
    _num_shed: int = 0
    _numbered: int = 0
    _fresh: deque[Row] = field(default_factory=deque)
    _again: deque[Row] = field(default_factory=deque)  # numbered before, by a runtime that was lost
    _sent: deque[Row | Block] = field(default_factory=deque)
    _num_sent: int = 0
    # Those of _fresh that are not shed, by level.
    _waiting: defaultdict[pb.TelemetryLevel, deque[Row]] = field(default_factory=lambda: defaultdict(deque))
    _num_waiting: int = 0
    _unread: list[Row] = field(default_factory=list)

    # Events that no row has had room for.
    events: EventBuffer = field(default_factory=EventBuffer)
    _bad: frozenset[str] = frozenset()
    _is_urgent: bool = False

    def note(self, level: pb.TelemetryLevel, description: str, **attributes: str) -> None:
        """Tell of something that happened; it travels with the next row that has room for it."""
        self.settle()
        self.events.add(pb.RowEvent(level=level, description=description, attributes=attributes))

    def add(self, step: int, timestamp_ns: int, values: dict[str, Value], level: pb.TelemetryLevel = INFO) -> None:
        """Keep a row; `values`, 0-dim tensors or floats by metric name, are the row's. Events may raise its level."""
        if self.plain.ended_s:
            self.settle()
        self._made += 1
        row = Row(timestamp_ns, step, values, self.events.take() if self.events.num else [], level)
        if row.events or level != INFO:  # most rows tell of nothing
            self._rate(row)
        if self._num_waiting + len(self._again) + self._num_sent >= self.capacity:  # _num_kept: a call less a row
            victim = self._victim(row.level)
            self._shed(victim or row)
            self.events.put_back(row.events)
            if victim is None:
                return
            self.events.put_back(victim.events)
            row.events = self.events.take()
            self._rate(row)
        self._fresh.append(row)
        self._unread.append(row)
        self._num_waiting += 1
        self._waiting[row.level].append(row)

    def go_with(self, **noted: float) -> None:
        """Plain rows of later steps have these beside what was measured; names in order, before "loss"."""
        self.settle()
        self.plain.note(noted)

    def tell_rest(self, step: int, timestamp_ns: int) -> None:
        """Where no step follows this one: what no row had room for in rows of it without values, if they have room.

        A row made of it puts no other one out: what is measured is worth as much, and there may be more room later.
        """
        self.settle()
        while self.events.num and self._num_kept < self.capacity:
            self.add(step, timestamp_ns, {})

    def settle(self) -> None:
        """Make a row by itself of each plain one."""
        if self.plain.ended_s:
            for row in self.plain.take().rows():
                self.add(row.step, row.timestamp_ns, row.values)

    def _rate(self, row: Row) -> None:
        row.level = highest([row.level, *(event.level for event in row.events)])
        self._is_urgent |= row.level == CRITICAL

    def _victim(self, level: pb.TelemetryLevel) -> Row | None:
        """The oldest row of the lowest level up to this one."""
        met = [each for each, rows in self._waiting.items() if rows and rank(each) <= rank(level)]
        if not met:
            return None
        self._num_waiting -= 1
        return self._waiting[min(met, key=rank)].popleft()

    def _shed(self, row: Row) -> None:
        row.is_shed = True
        self._num_shed += 1
        self.shed_by_level[row.level] += 1
        if len(self._fresh) > 2 * self.capacity:
            self._fresh = deque(each for each in self._fresh if not each.is_shed)
            self._unread = [each for each in self._unread if not each.is_shed]

    @property
    def made(self) -> int:
        return self._made + self.plain.num

    @property
    def shed(self) -> int:
        if self.unstored > self.capacity:
            self.settle()
        return self._num_shed

    @property
    def num_fresh(self) -> int:
        return self._num_waiting + len(self._again) + self.plain.num

    @property
    def num_under_way(self) -> int:
        """Rows handed over and not known to be on the stream."""
        return self._num_sent

    @property
    def unstored(self) -> int:
        """Rows not known to be on the stream."""
        return self._num_kept + self.plain.num

    @property
    def _num_kept(self) -> int:
        return self._num_waiting + len(self._again) + self._num_sent

    def table(self) -> pb.TelemetryRows | None:
        """Rows not yet sent, as one message; None where there are none, or enough are under way and none is urgent."""
        room = self.most_under_way - self._num_sent
        if self.plain.ended_s:
            if self._goes_as_it_is(room):
                return self._block()
            self.settle()
        is_held = room < min(FEWEST, self.most_under_way)
        if not is_held or len(self._unread) >= LOOK_EVERY:
            self._read()
        if is_held and not self._is_urgent:
            return None
        rows = self._critical() if is_held and not self._again else self._next(room)
        if not rows:
            self._is_urgent = False
            return None
        self._sent.extend(rows)
        self._num_sent += len(rows)
        names = sorted(rows[0].values)
        levels = [row.level for row in rows]
        return pb.TelemetryRows(
            incarnation=self.incarnation,
            first_sequence=rows[0].sequence,
            names=names,
            timestamp_ns=[row.timestamp_ns for row in rows],
            global_step=[row.step for row in rows],
            values=[float(values[name]) for values in [row.values for row in rows] for name in names],
            shed=self._num_shed,
            level=levels if levels.count(INFO) < len(levels) else [],
            events=[_placed(event, index) for index, row in enumerate(rows) if row.events for event in row.events],
        )

    def _goes_as_it_is(self, room: int) -> bool:
        """Whether the plain rows, and no others, are the next table: most of them in a run."""
        num = self.plain.num
        others = self._num_waiting or self._again or self.events.num or self._bad
        return 0 < num <= min(room, self.capacity - self._num_sent) and not others and self.plain.is_smooth

    def _block(self) -> pb.TelemetryRows:
        block = self.plain.take(self._numbered + 1)
        self._made += block.num
        self._numbered += block.num
        self._num_sent += block.num
        self._sent.append(block)
        self.last = block.named(block.num - 1)
        return pb.TelemetryRows(
            incarnation=self.incarnation,
            first_sequence=block.first_sequence,
            names=block.names,
            timestamp_ns=block.timestamps_ns,
            global_step=block.steps,
            values=block.values,
            shed=self._num_shed,
        )

    def _next(self, room: int) -> list[Row]:
        """Those that were numbered before, then others in the order in which they came."""
        rows = _alike(self._again, room=len(self._again))
        if not self._again:
            rows += self._number(_alike(self._fresh, rows, room - len(rows)))
        return rows

    def _critical(self) -> list[Row]:
        """Only rows that tell of something critical, from among those that wait."""
        urgent = deque(row for row in self._fresh if not row.is_shed and is_critical(row))
        rows = _alike(urgent, room=len(urgent))
        taken = set(rows)
        self._fresh = deque(row for row in self._fresh if row not in taken)
        return self._number(rows)

    def _number(self, rows: list[Row]) -> list[Row]:
        self._num_waiting -= len(rows)
        for row in rows:
            self._waiting[row.level].remove(row)  # the first one mostly: both are in the order in which they came
            self._numbered += 1
            row.sequence = self._numbered
        return rows

    def _read(self) -> None:
        """Read what the rows have measured, in one transfer, and look at it."""
        rows = [row for row in self._unread if not row.is_shed]
        self._unread.clear()
        if rows:
            read_tensors(rows)
            measured = next((row.values for row in reversed(rows) if row.values), self.last)
            self.last = {name: float(value) for name, value in measured.items()}
            self._note_non_finite(rows)

    def _note_non_finite(self, rows: list[Row]) -> None:
        """Count every such row, but tell of a metric only where it ceases to be finite: a lost run stays lost."""
        if not self._bad and math.isfinite(sum([sum(row.values.values()) for row in rows])):
            return
        for row in rows:
            bad = {name: str(float(value)) for name, value in row.values.items() if not math.isfinite(float(value))}
            self.non_finite += bool(bad)
            if fresh := {name: value for name, value in bad.items() if name not in self._bad}:
                self._raise(row, pb.RowEvent(level=CRITICAL, description="value.non_finite", attributes=fresh))
            self._bad = frozenset(bad)

    def _raise(self, row: Row, event: pb.RowEvent) -> None:
        """Tell of an event with a row that waits already, and keeps its place among those of its level."""
        if len(row.events) == NUM_EVENTS:
            self.events.put_back([row.events.pop()])
        row.events.append(event)
        self._is_urgent = True

    def stored(self, through_sequence: int) -> None:
        """Let go of the rows up to this number."""
        sent = self._sent
        while sent and sent[0].sequence <= through_sequence:
            gone = sent.popleft()
            self._num_sent -= gone.num if type(gone) is Block else 1
        if self._sent and isinstance(first := self._sent[0], Block) and first.first_sequence <= through_sequence:
            rest = [row for row in first.rows() if row.sequence > through_sequence]
            self._num_sent -= first.num - len(rest)
            self._sent.popleft()
            self._sent.extendleft(reversed(rest))

    def send_again(self) -> None:
        """After the runtime was lost: everything not known to be stored goes out anew, under the same numbers."""
        rows = [row for sent in self._sent for row in (sent.rows() if isinstance(sent, Block) else (sent,))]
        self._again.extendleft(reversed(rows))
        self._sent.clear()
        self._num_sent = 0


def is_critical(row: Row) -> bool:
    return row.level == CRITICAL or any(event.level == CRITICAL for event in row.events)


def _placed(event: pb.RowEvent, index: int) -> pb.RowEvent:
    placed = pb.RowEvent()
    placed.CopyFrom(event)
    placed.row = index
    return placed


def _alike(waiting: deque[Row], before: Sequence[Row] = (), room: int = 0) -> list[Row]:
    """Take up to so many of the first rows that have the same columns, those of `before`, if any: no cell is empty."""
    rows: list[Row] = []
    names = before[0].values.keys() if before else None
    num_events = 0
    while waiting and len(rows) < room and num_events < MOST_EVENTS:
        row = waiting[0]
        if not row.is_shed:
            names = row.values.keys() if names is None else names
            if row.values.keys() != names:
                break
            rows.append(row)
            num_events += len(row.events)
        waiting.popleft()
    return rows


def read_tensors(rows: list[Row]) -> None:
    """Replace every tensor by its value, with one transfer per device and dtype."""
    groups: dict[tuple[torch.device, torch.dtype], list[tuple[Row, str, torch.Tensor]]] = {}
    for row in rows:
        for name, value in row.values.items():
            if type(value) is not float and isinstance(value, torch.Tensor):  # what most are, first
                groups.setdefault((value.device, value.dtype), []).append((row, name, value))
    for group in groups.values():
        numbers = torch.stack([value for _, _, value in group]).to(torch.float64).tolist()
        for (row, name, _), number in zip(group, numbers, strict=True):
            row.values[name] = number
