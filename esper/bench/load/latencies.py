"""How long answers took: counts in bins of 1 %, so that those of several workers add up exactly."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

STEP: float = 1.01
LOWEST_MS, HIGHEST_MS = 1e-3, 1e7
"""A microsecond, less than which is counted as one, and nearly three hours, more than which as that."""

_LOG_STEP = math.log(STEP)
LAST_BIN = int(math.log(HIGHEST_MS / LOWEST_MS) / _LOG_STEP)


@dataclass(slots=True)
class Latencies:
    """A histogram in milliseconds. A value read from it lies within 0.5 % of a true one; both ends are exact."""

    bins: Counter[int] = field(default_factory=Counter)
    lowest_ms: float = math.inf
    highest_ms: float = 0.0
    sum_ms: float = 0.0

    @property
    def num(self) -> int:
        return self.bins.total()

    def note(self, taken_ms: float) -> None:
        """Count one. Where two clocks differ it may be below 0, and counts as the shortest."""
        taken_ms = max(0.0, taken_ms)
        self.bins[_bin_of(taken_ms)] += 1
        self.lowest_ms, self.highest_ms = min(self.lowest_ms, taken_ms), max(self.highest_ms, taken_ms)
        self.sum_ms += taken_ms

    def add(self, other: Latencies) -> None:
        """Count all that another has counted."""
        self.bins.update(other.bins)
        self.lowest_ms, self.highest_ms = min(self.lowest_ms, other.lowest_ms), max(self.highest_ms, other.highest_ms)
        self.sum_ms += other.sum_ms

    def quantile(self, level: float) -> float | None:
        """Milliseconds that a share of `level` did not exceed; None of nothing."""
        rank, seen = max(1, math.ceil(level * self.num)), 0
        for number, count in sorted(self.bins.items()):
            seen += count
            if seen >= rank:
                return min(max(_middle(number), self.lowest_ms), self.highest_ms)
        return None

    def bars(self, most: int) -> Iterator[tuple[float, float, int]]:
        """From, to and how many, in at most `most` ranges of equal ratio that hold everything."""
        if not self.bins:
            return
        first, last = min(self.bins), max(self.bins)
        width = max(1, math.ceil((last - first + 1) / most))
        for start in range(first, last + 1, width):
            count = sum(self.bins[number] for number in range(start, start + width) if number in self.bins)
            yield LOWEST_MS * STEP**start, LOWEST_MS * STEP ** (start + width), count


def _bin_of(taken_ms: float) -> int:
    return min(LAST_BIN, int(math.log(taken_ms / LOWEST_MS) / _LOG_STEP)) if taken_ms > LOWEST_MS else 0


def _middle(number: int) -> float:
    return float(LOWEST_MS * STEP ** (number + 0.5))
