"""The runner on calls that really take their time, on whatever else the machine does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from esper.bench.arm import Arm, Ready
from esper.bench.effort import EFFORTS
from esper.bench.row import Comparison
from esper.bench.statistics.summary import figures_of
from esper.bench.timing.comparing import compared, paired
from esper.bench.timing.opened import opened, samplers
from tests.bench_kit import BRIEF, told


def counting(num: int) -> Callable[[], Ready]:
    return lambda: Ready(lambda: sum(range(num)), lambda: 0)


def test_a_call_of_a_tenth_more_work_is_slower_and_the_control_is_not() -> None:
    row = Comparison("counting", "t", (Arm("a", counting(10_000)), Arm("b", counting(11_000))), threshold=0.03)

    figures = tuple(compared(row, replace(EFFORTS["full"], width=0.005)))

    slow, control = (told(figures, name, "p50").vs for name in ("b", "a again"))
    assert slow is not None and control is not None
    assert slow.verdict == "slower" and slow.low > 1.0
    assert control.verdict == "indistinguishable" and control.low < 1.03 and control.high > 0.97


def test_of_sixty_tries_of_one_call_against_itself_at_most_one_alarms_and_none_twice_running() -> None:
    row = Comparison("counting", "t", (Arm("a", counting(5_000)), Arm("b", counting(5_000))))
    told_apart = list[bool]()

    with opened(row, row.arms) as ready:
        calls = samplers(row, ready)
        for seed in range(60):
            figures = tuple(figures_of(row, paired(row, calls, replace(BRIEF, seed=seed)).samples))
            ratio = told(figures, "b", "p50").vs
            told_apart.append(ratio is not None and ratio.verdict != "indistinguishable")

    assert sum(told_apart) <= 1
    assert not any(one and other for one, other in pairwise(told_apart))
