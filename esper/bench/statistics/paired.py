"""Differences of what was measured twice per seed, with Student's interval: for samples too few to resample."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import scipy

from esper.bench.figures import Ratio

LEVEL = 0.95


def ratio_of_means(values: Sequence[float], base: Sequence[float], arm: str) -> Ratio:
    """Geometric mean of the pairs' ratios to `arm`, all above 0; its interval by t on their logarithms."""
    low, middle, high = mean_of([math.log(one / other) for one, other in zip(values, base, strict=True)])
    return Ratio(arm, math.exp(middle), bounded(low), bounded(high))


def mean_of(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower bound, mean, upper bound at 95 %; infinite bounds for a single value."""
    middle = statistics.fmean(values)
    if len(values) < 2:
        return -math.inf, middle, math.inf
    error = statistics.stdev(values) / math.sqrt(len(values))
    half = float(scipy.stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * error
    return middle - half, middle, middle + half


def bounded(log: float) -> float:
    """exp, without an overflow."""
    return math.exp(log) if log < 700 else math.inf
