"""Packets into columns as they come: each is looked at once, and nothing but numbers is kept."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, repeat
from operator import itemgetter
from typing import TypeAlias

import numpy as np

from esper.errors import first_bytes
from esper.leyline import contracts as pb
from esper.leyline.validate.telemetry import Names
from esper.narset.layout import Layout
from esper.narset.statistics import Origin

NAME_BYTES = 255  # of a metric, on the wire
Pick: TypeAlias = Callable[[Mapping[str, float]], tuple[float, ...]] | None
"""Takes a packet's values in the order of its columns, in half the time of asking for each."""


@dataclass(slots=True)
class Columns:
    """Packets that measure the same, in the order in which they came: one list a field, values packet after packet."""

    names: tuple[str, ...]
    values: array[float] = field(default_factory=lambda: array("d"))
    times_ns: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    """The place of the first packet of each message."""
    events: list[tuple[int, pb.TelemetryEvent]] = field(default_factory=list)
    points: list[tuple[int, str, float]] = field(default_factory=list)
    """What packets measured beside their values: place, name and value."""

    def __len__(self) -> int:
        return len(self.sequences)

    def takes(self, values: Mapping[str, float]) -> bool:
        """Whether these are the values of the next packet; then they are in."""
        if len(values) != len(self.names):
            return False
        length = len(self.values)
        try:
            self.values.extend(map(values.get, self.names))  # type: ignore[arg-type]
        except TypeError:  # None is no number: one of the names is not there
            del self.values[length:]
            return False
        return True

    def origin(self, place: int) -> Origin:
        """Where a packet comes from; packets are ordered by this."""
        return Origin(self.times_ns[place], self.sources[place], self.sequences[place])


@dataclass(slots=True)
class Stack:
    """Rows of one layout, message after message: how many, from which source and when, as they came."""

    rows: list[bytes] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    stored_ns: list[int] = field(default_factory=list)


class Gathering:
    """What tier 1 has in hand of packets, by what they measure. `slack_ns`: so much after it was stored may one be."""

    def __init__(self, slack_ns: int) -> None:
        self.num_packets = 0
        self._slack_ns = slack_ns
        self._stacks: dict[Layout, Stack] = {}
        self.columns: dict[frozenset[str], Columns] = {}
        self._newest = Columns(())
        self._plain: dict[Names, tuple[Columns, Pick]] = {}

    def add(self, source: str, packets: Iterable[pb.TelemetryPacket], stored_ns: int, names: Names = None) -> int:
        """The packets of one message; how many of them say that they are from after it was stored.

        `names`: of the values of each, where they were seen to hold nothing else.
        """
        columns, pick = self._plain.get(names) or self._plainly(names)
        latest_ns = stored_ns + self._slack_ns
        num_skewed = num_added = 0
        for packet in packets:
            if pick is None:
                columns = self._columns_of(packet)
            else:
                columns.values.extend(pick(packet.values))
            if not num_added:
                columns.messages.append(len(columns.sequences))
            num_added += 1
            time_ns = packet.timestamp_ns
            if time_ns > latest_ns:
                num_skewed, time_ns = num_skewed + 1, stored_ns
            columns.times_ns.append(time_ns)
            columns.steps.append(packet.global_step)
            columns.levels.append(packet.level)
            columns.sources.append(packet.source_subsystem or source)
            columns.sequences.append(packet.sequence)
        self.num_packets += num_added
        return num_skewed

    def pile(self, source: str, layout: Layout, rows: bytes, count: int, stored_ns: int) -> None:
        """The rows of one message, to be looked at when all are."""
        stack = self._stacks.get(layout)
        if stack is None:
            stack = self._stacks[layout] = Stack()
        stack.rows.append(rows)
        stack.counts.append(count)
        stack.sources.append(source)
        stack.stored_ns.append(stored_ns)
        self.num_packets += count

    def unpile(self) -> int:
        """All rows into the columns; how many of them say that they are from after they were stored."""
        stacks, self._stacks = self._stacks, {}
        return sum(self._unpiled(layout, stack) for layout, stack in stacks.items())

    def _unpiled(self, layout: Layout, stack: Stack) -> int:
        columns = self.columns.setdefault(frozenset(layout.names), Columns(layout.names))
        met, counts = layout.read(b"".join(stack.rows)), np.array(stack.counts)
        stored_ns = np.array(stack.stored_ns, dtype=np.uint64).repeat(counts)
        ahead = met.times_ns > stored_ns + np.uint64(self._slack_ns)
        columns.messages += (len(columns) + np.cumsum(counts) - counts).tolist()
        values = met.values
        if columns.names != layout.names:
            values = values[:, [layout.names.index(name) for name in columns.names]]
        columns.values.frombytes(values.tobytes())
        columns.times_ns += np.where(ahead, stored_ns, met.times_ns).tolist()
        columns.steps += met.steps.tolist()
        columns.levels += [layout.level] * len(ahead)
        columns.sources += chain.from_iterable(map(repeat, stack.sources, stack.counts))
        columns.sequences += met.sequences.tolist()
        return int(ahead.sum())

    def _plainly(self, names: Names) -> tuple[Columns, Pick]:
        """The columns for these names, in whatever order they come, and what takes the values out of a packet."""
        if names is None or len(names) < 2:  # then an itemgetter gives no tuple
            return self._newest, None
        columns = self._newest = self.columns.setdefault(frozenset(names), Columns(names))
        self._plain[names] = columns, itemgetter(*columns.names)
        return self._plain[names]

    def _columns_of(self, packet: pb.TelemetryPacket) -> Columns:
        """Those that the packet's values went to: nearly always the same as of the one before."""
        values, columns = packet.values, self._newest
        if not (self.columns and columns.takes(values)):
            columns = self._newest = self._other(values)
        place = len(columns.sequences)
        if events := packet.events:
            columns.events += [(place, event) for event in events]
        if points := packet.metrics:
            columns.points += [(place, name_of(point), point.value) for point in points]
        return columns

    def _other(self, values: Mapping[str, float]) -> Columns:
        names = frozenset(values)
        columns = self.columns.setdefault(names, Columns(tuple(names)))
        columns.takes(values)
        return columns


def name_of(point: pb.MetricPoint) -> str:
    """The metric's name with its labels, as far as the wire has room for them: what is too long is told by its hash.

    A point with labels is a metric of its own, `name{label=value,...}`.
    """
    if not point.labels:
        return point.name
    labels = ",".join(f"{label}={text}" for label, text in sorted(point.labels.items()))
    name = f"{point.name}{{{labels}}}"
    if len(name.encode()) <= NAME_BYTES:
        return name
    digest = sha256(name.encode()).hexdigest()[:16]
    return f"{first_bytes(point.name, NAME_BYTES - 18)}{{{digest}}}"
