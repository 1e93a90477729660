"""Measurements of the training loop, kept until they are stored."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from esper.leyline import contracts as pb

Value = float | torch.Tensor


@dataclass(slots=True)
class _Row:
    sequence: int
    timestamp_ns: int
    step: int
    values: Mapping[str, Value]
    events: list[pb.RowEvent]


@dataclass
class Rows:
    """One row a step, numbered from 1 without a gap, kept until Redis has acknowledged it.

    A row refused because `capacity` rows wait is counted as shed and gets no number, so that the numbers given stay
    contiguous. Tensors are read in one transfer at `table`, never before.
    """

    incarnation: int
    capacity: int = 8192
    shed: int = 0
    made: int = 0
    non_finite: int = 0
    last: dict[str, float] = field(default_factory=dict)
    _fresh: deque[_Row] = field(default_factory=deque)
    _sent: deque[_Row] = field(default_factory=deque)

    _events: list[pb.RowEvent] = field(default_factory=list)
    _bad: frozenset[str] = frozenset()

    def note(self, level: pb.TelemetryLevel, description: str, **attributes: str) -> None:
        """Tell of something that happened; it travels with the next row."""
        self._events.append(pb.RowEvent(level=level, description=description, attributes=attributes))

    def add(self, step: int, timestamp_ns: int, values: Mapping[str, Value]) -> None:
        """Keep a row; `values` are 0-dim tensors or floats by metric name."""
        self.made += 1
        if self.unstored >= self.capacity:
            self.shed += 1
            return
        self._fresh.append(_Row(self.made - self.shed, timestamp_ns, step, values, self._events))
        self._events = []

    @property
    def num_fresh(self) -> int:
        return len(self._fresh)

    @property
    def unstored(self) -> int:
        """Rows not known to be on the stream."""
        return len(self._fresh) + len(self._sent)

    def table(self) -> pb.TelemetryRows | None:
        """Rows not yet sent, as one message; None where there are none."""
        rows = _alike(self._fresh)
        if not rows:
            return None
        read_tensors(rows)
        self.last = {name: float(value) for name, value in rows[-1].values.items()}
        self._note_non_finite(rows)
        self._sent.extend(rows)
        names = sorted(rows[0].values)
        return pb.TelemetryRows(
            incarnation=self.incarnation,
            first_sequence=rows[0].sequence,
            names=names,
            timestamp_ns=[row.timestamp_ns for row in rows],
            global_step=[row.step for row in rows],
            values=[float(row.values[name]) for row in rows for name in names],
            shed=self.shed,
            events=[_placed(event, index) for index, row in enumerate(rows) for event in row.events],
        )

    def _note_non_finite(self, rows: list[_Row]) -> None:
        """Count every such row, but tell of a metric only where it ceases to be finite: a lost run stays lost."""
        for row in rows:
            bad = {name: str(float(value)) for name, value in row.values.items() if not math.isfinite(float(value))}
            self.non_finite += bool(bad)
            if fresh := {name: value for name, value in bad.items() if name not in self._bad}:
                level = pb.TelemetryLevel.TELEMETRY_CRITICAL
                row.events.append(pb.RowEvent(level=level, description="value.non_finite", attributes=fresh))
            self._bad = frozenset(bad)

    def stored(self, through_sequence: int) -> None:
        """Let go of the rows up to this number."""
        while self._sent and self._sent[0].sequence <= through_sequence:
            self._sent.popleft()

    def send_again(self) -> None:
        """After the runtime was lost: everything not known to be stored goes out anew, under the same numbers."""
        self._fresh.extendleft(reversed(self._sent))
        self._sent.clear()


def _placed(event: pb.RowEvent, index: int) -> pb.RowEvent:
    placed = pb.RowEvent()
    placed.CopyFrom(event)
    placed.row = index
    return placed


def _alike(fresh: deque[_Row]) -> list[_Row]:
    """Take the first rows that have the same columns, so that a table has no empty cell."""
    rows = [fresh.popleft()] if fresh else []
    while fresh and fresh[0].values.keys() == rows[0].values.keys():
        rows.append(fresh.popleft())
    return rows


def read_tensors(rows: list[_Row]) -> None:
    """Replace every tensor by its value, with one transfer per device."""
    held = [(row, name, value) for row in rows for name, value in row.values.items() if isinstance(value, torch.Tensor)]
    by_device: dict[torch.device, list[tuple[_Row, str, torch.Tensor]]] = {}
    for row, name, value in held:
        by_device.setdefault(value.device, []).append((row, name, value))
    for group in by_device.values():
        numbers = torch.stack([value.to(torch.float64) for _, _, value in group]).tolist()
        for (row, name, _), number in zip(group, numbers, strict=True):
            row.values = {**row.values, name: number}
