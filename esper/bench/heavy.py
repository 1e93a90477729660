"""Comparisons whose single call takes a good part of a second: a quick run does without them, and says so."""

from __future__ import annotations

from collections.abc import Iterator

from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.row import Comparison, Measurement

WHY = "left out of a quick run"


def unless_quick(row: Comparison) -> Measurement:
    """The same row, measured in the other modes."""

    def measure(effort: Effort) -> Iterator[Figure]:
        from esper.bench.comparing import absence, compared

        if effort.is_quick:
            return (absence(row, arm.name, WHY) for arm in row.arms)
        return compared(row, effort)

    return Measurement(row.name, row.family, measure)
