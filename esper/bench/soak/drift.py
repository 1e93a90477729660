"""How a quantity drifts over a run of hours: a slope that outliers hardly move, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

LEVEL = 0.95
MOST_BLOCKS = 200  # pairs of blocks: 20,000
LEAST = 4  # points; with fewer a slope has no interval


@dataclass(frozen=True, slots=True)
class Drift:
    """A slope per hour with its 95 % interval, and what it comes to over the whole, of the level at the start."""

    slope: float
    low: float
    high: float
    start: float
    hours: float

    def end_to_start(self) -> tuple[float, float, float]:
        """Ratio, low, high."""
        return tuple(1.0 + each * self.hours / self.start for each in (self.slope, self.low, self.high))  # type: ignore[return-value]


def drift(hours: Sequence[float], values: Sequence[float], sessions: Sequence[int]) -> Drift | None:
    """Theil and Sen's slope over medians of blocks, as neighbours in time are alike and would narrow the interval.

    `hours` count on over `sessions`; each session's points are taken about that session's own medians, so that what a
    new process holds at its start is no drift. None where there are fewer than four points.
    """
    times, levels = _blocks(np.asarray(hours), np.asarray(values), np.asarray(sessions))
    if len(times) < LEAST or np.ptp(times) == 0:
        return None
    found = scipy.stats.theilslopes(levels, times, alpha=LEVEL)
    start, span = float(np.median(np.asarray(values)[: max(1, len(values) // 10)])), float(max(hours) - min(hours))
    return Drift(float(found.slope), float(found.low_slope), float(found.high_slope), start, span)


Column = NDArray[np.float64]


def _blocks(times: Column, values: Column, sessions: NDArray[np.int64]) -> tuple[Column, Column]:
    size = max(1, len(times) // MOST_BLOCKS)
    kept_times, kept_values = list[Column](), list[Column]()
    for session in np.unique(sessions):
        here = sessions == session
        own_times, own_values = _medians(times[here], size), _medians(values[here], size)
        if len(own_times) > 1:
            kept_times.append(own_times - np.median(own_times))
            kept_values.append(own_values - np.median(own_values))
    if not kept_times:
        return np.empty(0), np.empty(0)
    return np.concatenate(kept_times), np.concatenate(kept_values)


def _medians(values: Column, size: int) -> Column:
    return np.asarray([np.median(values[at : at + size]) for at in range(0, len(values), size)])
