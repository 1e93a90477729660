"""Two runs beside each other: what can be said of figures that were not measured in one interleaved run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from esper.bench.figures import Figure, Ratio
from esper.bench.results import Results

LEFT_OUT = frozenset({"p95", "p99", "p99 ratio", "max", "outliers", "warm-up", "per limit"})
"""Tails and counts that two single runs say nothing of."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """One figure of both runs. `values`: theirs to ours, as measured; `ratios`: each to its own run's reference, the
    second to the first with a 95 % interval, which a slower hour of the machine does not move."""

    one: Figure
    other: Figure
    ratios: Ratio | None

    @property
    def values(self) -> float | None:
        """None where either was not measured, or the first is 0."""
        if self.one.value is None or self.other.value is None or self.one.value == 0.0:
            return None
        return self.other.value / self.one.value


def contrasts(one: Results, other: Results) -> Iterator[Contrast]:
    """Of the figures that both have, in the order of the first."""
    theirs = {_name(figure): figure for figure in other.figures}
    for figure in one.figures:
        if figure.stat not in LEFT_OUT and _name(figure) in theirs:
            matched = theirs[_name(figure)]
            yield Contrast(figure, matched, of_ratios(figure.vs, matched.vs))


def of_ratios(one: Ratio | None, other: Ratio | None) -> Ratio | None:
    """The second to the first; the intervals of two independent runs add up in squares on the log.

    No verdict: whole runs are what is drawn anew, and one of each says nothing of how far two equal ones lie apart.
    """
    if one is None or other is None or one.arm != other.arm or not _usable(one, other):
        return None
    middle = other.ratio / one.ratio
    below = math.hypot(math.log(other.ratio / other.low), math.log(one.high / one.ratio))
    above = math.hypot(math.log(other.high / other.ratio), math.log(one.ratio / one.low))
    return Ratio(one.arm, middle, middle * math.exp(-below), middle * math.exp(above))


def missing(one: Results, other: Results) -> list[str]:
    """Rows that only the first has."""
    theirs = {figure.row for figure in other.figures}
    return list(dict.fromkeys(figure.row for figure in one.figures if figure.row not in theirs))


def _name(figure: Figure) -> tuple[str, str, str, str, str]:
    return (figure.row, figure.shape, figure.arm, figure.stat, figure.unit)


def _usable(*ratios: Ratio) -> bool:
    return all(0.0 < each.low <= each.ratio <= each.high < math.inf for each in ratios)
