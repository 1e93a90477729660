"""Arms and rows to run the runner on, whose times are made up or lie wide apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from esper.bench.agreement import Answer
from esper.bench.arm import Arm, Ready
from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.machine import this_machine
from esper.bench.results import Results, Sitting
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


def figure(value: float, row: str = "row", arm: str = "ours", higher: bool = False) -> Figure:
    return Figure(row, arm, "p50", value, "ms", 30, higher=higher)


def results(figures: Iterable[Figure], effort: Effort = BRIEF) -> Results:
    """Of a run on this machine."""
    own = tuple(figures)
    took_s = {one.row: 1.0 for one in own}
    sitting = Sitting(tuple(took_s), "commit", False, 0.1, 0.2, 0.0, 1.0)
    return Results(own, (), (), machine(), effort, 0.0, 1.0, took_s, (sitting,))


machine = cache(this_machine)
