"""Figures of a run looked up by what they are of, and what a row's samples come to."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from esper.bench.figures import Figure
from esper.bench.statistics.samples import NEEDED, percentile


class Readings:
    """Of several runs; what was measured last counts."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], list[Figure]] = {}

    def add(self, figures: Iterable[Figure]) -> None:
        """A row that is measured anew replaces what was known of it."""
        new: dict[tuple[str, str, str], list[Figure]] = {}
        for figure in figures:
            new.setdefault((figure.row, figure.arm, figure.stat), []).append(figure)
        self._found |= new

    def value(self, row: str, arm: str, stat: str, shape: str = "") -> float | None:
        """None where it was not measured, here or at all. `shape`: where a row has several."""
        figures = self._found.get((row, arm, stat), [])
        return next((figure.value for figure in figures if shape in ("", figure.shape)), None)

    def samples(self, row: str, arm: str, stat: str = "p50") -> Sequence[float]:
        """In the row's unit, in the order in which they were taken; empty where there are none."""
        figures = self._found.get((row, arm, stat), [])
        return figures[0].samples if figures else ()

    def numbers(self) -> dict[str, float]:
        """Every value that was measured, under "row, arm, statistic", and its shape where a row has several."""
        return {
            ", ".join([*key, *([figure.shape] if len(figures) > 1 else [])]): figure.value
            for key, figures in self._found.items()
            for figure in figures
            if figure.value is not None
        }


@dataclass(frozen=True, slots=True)
class Spread:
    """What samples come to. None: too few of them to say so."""

    values: Sequence[float]

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def median(self) -> float | None:
        return self._percentile("p50")

    @property
    def p95(self) -> float | None:
        return self._percentile("p95")

    @property
    def p99(self) -> float | None:
        return self._percentile("p99")

    @property
    def least(self) -> float | None:
        return min(self.values, default=None)

    @property
    def most(self) -> float | None:
        return max(self.values, default=None)

    @property
    def deviation(self) -> float | None:
        """Standard deviation of the sample."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def _percentile(self, stat: str) -> float | None:
        return percentile(self.values, stat) if len(self.values) >= NEEDED[stat] else None


def below(value: float | None, bound: float) -> bool:
    """Whether it was measured and lies below. What is unmeasured fails."""
    return value is not None and value < bound
