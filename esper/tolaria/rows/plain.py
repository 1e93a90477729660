"""Rows of steps of which nothing but numbers is known, in columns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite

import torch

from esper.leyline import contracts as pb
from esper.leyline.levels import INFO

Value = float | torch.Tensor
NAMES = ("loss", "lr", "step_ms")


@dataclass(slots=True, eq=False)
class Row:
    """One row by itself. Without a sequence it has not been handed over."""

    timestamp_ns: int
    step: int
    values: dict[str, Value]
    events: list[pb.RowEvent] = field(default_factory=list)
    level: pb.TelemetryLevel = INFO
    sequence: int = 0
    is_shed: bool = False


@dataclass(slots=True, eq=False)
class Block:
    """Rows of consecutive steps that were handed over together."""

    names: tuple[str, ...]
    first_sequence: int
    first_step: int
    timestamps_ns: list[int]
    values: list[float]

    @property
    def num(self) -> int:
        return len(self.timestamps_ns)

    @property
    def sequence(self) -> int:
        """The last one."""
        return self.first_sequence + self.num - 1

    @property
    def steps(self) -> range:
        return range(self.first_step, self.first_step + self.num)

    def rows(self) -> Iterator[Row]:
        for at, (step, timestamp_ns) in enumerate(zip(self.steps, self.timestamps_ns, strict=True)):
            yield Row(timestamp_ns, step, dict(self.named(at)), sequence=self.first_sequence + at)

    def named(self, at: int) -> dict[str, float]:
        """Values of the row at this place."""
        width = len(self.names)
        return dict(zip(self.names, self.values[width * at : width * (at + 1)], strict=True))


@dataclass(slots=True, eq=False)
class Plain:
    """Filled by whoever ends a step, as nothing costs less than to append a number; the lists stay the same ones."""

    next_step: int = 0  # the step behind the last one
    ended_s: list[float] = field(default_factory=list)  # monotonic
    values: list[float] = field(default_factory=list)  # of each step those noted, and those of NAMES
    noted: tuple[float, ...] = ()
    names: tuple[str, ...] = NAMES

    @property
    def num(self) -> int:
        return len(self.ended_s)

    @property
    def is_smooth(self) -> bool:
        """Whether all values are finite numbers; a rate that a script has made a tensor is none."""
        return set(map(type, self.values)) == {float} and isfinite(sum(self.values))

    def note(self, noted: Mapping[str, float]) -> None:
        """These go with each step from now on; call it with no row waiting. Their names come before those of NAMES."""
        self.names, self.noted = (*noted, *NAMES), tuple(noted.values())

    def take(self, first_sequence: int = 0) -> Block:
        """All of them, and begin anew."""
        late_ns = time.time_ns() - time.monotonic_ns()
        timestamps = [late_ns + int(ended_s * 1e9) for ended_s in self.ended_s]
        first_step, values = self.next_step - self.num, self.values.copy()
        block = Block(self.names, first_sequence, first_step, timestamps, values)
        self.ended_s.clear()
        self.values.clear()
        return block
