"""Arms and rows to run the runner on, whose times are made up or lie wide apart."""

from __future__ import annotations

from collections.abc import Callable

from esper.bench.agreement import Answer
from esper.bench.arm import Arm, Ready
from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.row import Comparison

BRIEF = Effort("quick", 30, 30, 0.05, 5.0)


def arm(name: str, call: Callable[[], object], answer: Answer = 0, missing: str = "") -> Arm:
    return Arm(name, lambda: Ready(call, lambda: answer), (lambda: missing) if missing else None)


def nothing() -> None: ...


def row(*arms: Arm) -> Comparison:
    return Comparison("row", "family", arms)


def told(figures: tuple[Figure, ...], arm: str, stat: str) -> Figure:
    """The one figure of this arm and statistic."""
    [found] = [figure for figure in figures if (figure.arm, figure.stat) == (arm, stat)]
    return found
