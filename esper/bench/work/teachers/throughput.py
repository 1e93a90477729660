"""Samples per second of a student with and without a teacher, from the steps that were timed in turns."""

from __future__ import annotations

from collections.abc import Iterator

from esper.bench.effort import Effort
from esper.bench.figures import DERIVED, Figure
from esper.bench.rows.distillation import BATCH, KEPT_ASPIRED, KEPT_OF_THROUGHPUT, STEP
from esper.bench.timing.comparing import compared


def measure(effort: Effort) -> Iterator[Figure]:
    """The step's own figures, and for each student what its median comes to."""
    without = 0.0
    for figure in compared(STEP, effort):
        yield figure
        if figure.stat == "p50" and figure.value and figure.arm != STEP.limit:
            rate = BATCH / (figure.value / 1e3)
            without = without or rate  # the reference comes first
            told = Figure(
                STEP.name, figure.arm, "rate", rate, "samples/s", figure.num, DERIVED, STEP.shape, higher=True
            )
            taught = figure.arm.startswith("with KD")
            yield told.aimed(KEPT_OF_THROUGHPUT * without, KEPT_ASPIRED * without) if taught else told
