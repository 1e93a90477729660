"""Events that no row of telemetry has had room for."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from esper.leyline import contracts as pb
from esper.leyline.levels import CRITICAL, rank
from esper.leyline.validate.bounds import NUM_EVENTS

Placed: TypeAlias = tuple[int, pb.RowEvent]

MOST_UNTOLD = 1024
_PREFIX = "TELEMETRY_"


@dataclass
class EventBuffer:
    """Keeps up to `most` of them. Beyond that the oldest of the lowest level goes, counted by its level.

    What has gone is told by the next row that takes some: `events.dropped`, with how many since it was last told, how
    many in all, and how many in all of each level.
    """

    most: int = MOST_UNTOLD
    num: int = 0
    dropped: Counter[pb.TelemetryLevel] = field(default_factory=Counter)
    _num_told_of: int = 0  # of those dropped
    # Each with its place in the order in which they came.
    _by_level: defaultdict[pb.TelemetryLevel, deque[Placed]] = field(default_factory=lambda: defaultdict(deque))
    _first: int = 0
    _last: int = 0

    def add(self, event: pb.RowEvent) -> None:
        """Keep one that is newer than all others."""
        self._last += 1
        self._by_level[event.level].append((self._last, event))
        self.num += 1
        self._drop()

    def put_back(self, events: Sequence[pb.RowEvent]) -> None:
        """Keep some that are older than all others, in their order."""
        for event in reversed(events):
            self._first -= 1
            self._by_level[event.level].appendleft((self._first, event))
        self.num += len(events)
        self._drop()

    def take(self) -> list[pb.RowEvent]:
        """As many as a row has room for, in order; where some stay, or it is full, those that are critical first.

        Nothing tells of what is critical but the row.
        """
        taken = self._of_dropped()
        is_full = len(taken) + self.num >= NUM_EVENTS
        while self.num and len(taken) < NUM_EVENTS:
            waiting = [level for level, events in self._by_level.items() if events]
            if is_full and CRITICAL in waiting:
                level = CRITICAL
            else:
                level = min(waiting, key=lambda each: self._by_level[each][0][0])
            taken.append(self._by_level[level].popleft()[1])
            self.num -= 1
        return taken

    def _of_dropped(self) -> list[pb.RowEvent]:
        in_all = self.dropped.total()
        if in_all == self._num_told_of:
            return []
        told = {pb.TelemetryLevel.Name(level).removeprefix(_PREFIX): str(num) for level, num in self.dropped.items()}
        told |= {"num": str(in_all - self._num_told_of), "in_all": str(in_all)}
        self._num_told_of = in_all
        level = pb.TelemetryLevel.TELEMETRY_WARNING
        return [pb.RowEvent(level=level, description="events.dropped", attributes=told)]

    def _drop(self) -> None:
        while self.num > self.most:
            level = min((each for each, events in self._by_level.items() if events), key=rank)
            self._by_level[level].popleft()
            self.num -= 1
            self.dropped[level] += 1
