"""How samples are spread: what a box is drawn from, and what the table beside it says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from esper.bench.figures import Figure
from esper.bench.statistics.samples import within_fences


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one arm's samples, in the unit of its figures. Whiskers end at the outermost samples within the fences."""

    arm: str
    unit: str
    num: int
    least: float
    low: float
    quartile: float
    median: float
    upper: float
    high: float
    most: float
    outliers: int


def spread_of(arm: str, unit: str, samples: Sequence[float]) -> Spread:
    """At least one sample; quartiles are interpolated linearly."""
    values = np.sort(np.asarray(samples, dtype=float))
    quartile, median, upper = (float(value) for value in np.quantile(values, [0.25, 0.5, 0.75]))
    inside = values[within_fences(values)]
    least, most = float(values[0]), float(values[-1])
    low, high = float(inside[0]), float(inside[-1])
    return Spread(arm, unit, len(values), least, low, quartile, median, upper, high, most, len(values) - len(inside))


def spreads(figures: Iterable[Figure]) -> list[Spread]:
    """One an arm, of the first of its figures that carries samples."""
    found: dict[str, Spread] = {}
    for figure in figures:
        if len(figure.samples) and figure.arm not in found:
            found[figure.arm] = spread_of(figure.arm, figure.unit, figure.samples)
    return list(found.values())
