"""Which sequence numbers of one source have been met: a contiguous mark, and the stretches above it."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence

MAX_STRETCHES = 1024  # above the mark; past it the lowest hole is given up, so that the record stays bounded
_HEAD = struct.Struct(">QQQ")
_STRETCH = struct.Struct(">QQ")


class SequenceWindow:
    """Met numbers of one (source, incarnation), from 1. Knows nothing of packets; time is handed in.

    A hole is declared missing once and stays open: a number that arrives after all is still new.
    """

    def __init__(self, data: bytes = b"", *, begins_anywhere: bool = False) -> None:
        """`begins_anywhere`: it is not known what was met before, so that nothing below the first is ever missing."""
        self._begins_anywhere = begins_anywhere
        self.mark: int
        self.declared: int
        self.shed: int
        self.mark, self.declared, self.shed = _HEAD.unpack_from(data) if data else (0, 0, 0)
        self._stretches: list[list[int]] = [list(pair) for pair in _STRETCH.iter_unpack(data[_HEAD.size :])]
        self._sightings: deque[tuple[float, int]] = deque()
        self._given_up = 0
        self.num_out_of_order = 0
        """Numbers admitted below one met before, since this was last set to 0; not on record."""
        self.num_late = 0
        """Of those, numbers that had been declared missing."""

    def dump(self) -> bytes:
        """What __init__ takes; when holes were first seen is not part of it."""
        head = _HEAD.pack(self.mark, self.declared, self.shed)
        return head + b"".join(_STRETCH.pack(first, last) for first, last in self._stretches)

    @property
    def highest(self) -> int:
        """The largest number met."""
        return self._stretches[-1][1] if self._stretches else self.mark

    @property
    def first_hole_s(self) -> float | None:
        """When the oldest hole not yet declared was first looked at; None: there is none."""
        return self._sightings[0][0] if self._sightings else None

    def admit(self, number: int) -> bool:
        """Whether this number is new; it counts as met from now on."""
        if number == self.mark + 1 and not self._stretches:
            self.mark = number
            return True
        if number <= self.mark:
            return False
        is_below = number < self.highest
        if number == self.mark + 1:
            self.mark = number
            self._absorb()
        elif not self._admit_above(number):
            return False
        if is_below:
            self.num_out_of_order += 1
            self.num_late += number <= self.declared
        return True

    def admit_run(self, first: int, last: int) -> Sequence[int]:
        """Which numbers of a stretch are new; all of them count as met from now on."""
        run = range(first, last + 1)
        if first == self.mark + 1 and not self._stretches:
            self.mark = last
            return run
        if first > self.highest:
            if self._stretches and self._stretches[-1][1] == first - 1:
                self._stretches[-1][1] = last
            else:
                self._stretches.append([first, last])
                self._bound()
            return run
        return [number for number in run if self.admit(number)]

    def drop(self, shed: int) -> int:
        """Note the cumulative count of dropped packets; return by how much it has grown."""
        grown = max(0, shed - self.shed)
        self.shed += grown
        return grown

    def declare(self, now_s: float, patience_s: float) -> int:
        """Declare the holes seen at least `patience_s` ago; return how many numbers that adds. To be called often."""
        if self._begins_anywhere and (self.mark or self._stretches):
            self._begins_anywhere = False
            self.declared = max(self.declared, 0 if self.mark else self._stretches[0][0] - 1)
        if self._stretches and (not self._sightings or self._sightings[-1][1] < self.highest):
            self._sightings.append((now_s, self.highest))
        missing, self._given_up = self._given_up, 0
        while self._sightings and self._sightings[0][0] + patience_s <= now_s:
            missing += self._declare_through(self._sightings.popleft()[1])
        return missing

    def _declare_through(self, highest: int) -> int:
        below, missing = self.mark, 0
        for first, last in self._stretches:
            missing += max(0, min(first - 1, highest) - max(below, self.declared))
            below = last
        self.declared = max(self.declared, highest)
        return missing

    def _admit_above(self, number: int) -> bool:
        """By walking down from the top, where nearly all arrivals are."""
        stretches = self._stretches
        at = len(stretches)
        while at and stretches[at - 1][0] > number:
            at -= 1
        if at and number <= stretches[at - 1][1]:
            return False
        joins_lower = at > 0 and stretches[at - 1][1] == number - 1
        joins_upper = at < len(stretches) and stretches[at][0] == number + 1
        if joins_lower and joins_upper:
            stretches[at - 1][1] = stretches.pop(at)[1]
        elif joins_lower:
            stretches[at - 1][1] = number
        elif joins_upper:
            stretches[at][0] = number
        else:
            stretches.insert(at, [number, number])
            self._bound()
        return True

    def _absorb(self) -> None:
        if self._stretches and self._stretches[0][0] == self.mark + 1:
            self.mark = self._stretches.pop(0)[1]

    def _bound(self) -> None:
        if len(self._stretches) > MAX_STRETCHES:
            first, last = self._stretches.pop(0)
            self._given_up += max(0, first - 1 - max(self.mark, self.declared))
            self.mark = last
