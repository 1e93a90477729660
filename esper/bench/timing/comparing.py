"""A comparison from its arms to its figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from esper.bench.effort import TOO_LONG, Effort
from esper.bench.figures import MEASURED, Figure, not_measured
from esper.bench.row import Comparison
from esper.bench.statistics.samples import NEEDED
from esper.bench.statistics.summary import AGAIN, ASKED, STATS, figures_of, with_goals
from esper.bench.timing.collector import settled_collector
from esper.bench.timing.opened import agree, missing, opened, samplers
from esper.bench.timing.pairs import Taken, Timed, Watch, take
from esper.errors import SettingError


def compared(row: Comparison, effort: Effort) -> Iterator[Figure]:
    """Every figure of this row; a missing arm has one that says why. Raises ArmFailedError and DisagreementError."""
    check(row)
    if row.is_heavy and effort.is_quick:
        yield from left_out(row)
        return
    absent = missing(row)
    reference = row.arms[0].name
    if reference in absent:
        why = f"{reference}, which it is compared with, is missing ({absent[reference]})"
        yield from (absence(row, arm.name, absent.get(arm.name, why)) for arm in row.arms)
        return
    with opened(row, tuple(arm for arm in row.arms if arm.name not in absent)) as ready:
        agree(row, ready)
        with settled_collector():
            taken = paired(row, samplers(row, ready), effort)
    yield warm_up(row, taken)
    yield from figures_of(row, taken.samples)
    yield from (absence(row, name, why) for name, why in absent.items())


def paired(row: Comparison, calls: Mapping[str, Timed], effort: Effort, control: Timed | None = None) -> Taken:
    """The first of these is the reference, and is sampled under a second name too, or the `control` is."""
    reference = next(iter(calls))
    again = reference + AGAIN
    watched = [again, *(name for name in calls if name not in (reference, row.limit))]
    enough = max((NEEDED.get(ASKED.get(goal.stat, goal.stat), 1) for goal in row.goals), default=1)
    return take({**calls, again: control or calls[reference]}, Watch(reference, watched, enough), effort)


def check(row: Comparison) -> None:
    """Raises SettingError where a row names an arm or a statistic that there isn't."""
    names = [arm.name for arm in row.arms]
    if len({*names}) < len(names) or not names:
        raise SettingError(f"the arms of {row.name}", names, "one arm or more, each with a name of its own")
    if row.limit and row.limit not in names:
        raise SettingError(f"the limit of {row.name}", row.limit, f"one of its arms: {', '.join(names)}")
    if row.calls < 1:
        raise SettingError(f"the calls of {row.name} in one sample", row.calls, "1 or more")
    for goal in row.goals:
        if goal.arm not in names or goal.stat not in STATS:
            raise SettingError(f"a goal of {row.name}", (goal.arm, goal.stat), f"one of {names} and one of {STATS}")


def left_out(row: Comparison) -> Iterator[Figure]:
    return (absence(row, arm.name, TOO_LONG) for arm in row.arms)


def absence(row: Comparison, arm: str, why: str) -> Figure:
    return with_goals(row, Figure(row.name, arm, "p50", None, row.unit, label=not_measured(why), shape=row.conditions))


def warm_up(row: Comparison, taken: Taken) -> Figure:
    """How many rounds went before the samples."""
    why = f"calls still got faster or slower after {taken.num_warm} rounds of warm-up"
    value, label = (float(taken.num_warm), MEASURED) if taken.is_warm else (None, not_measured(why))
    return Figure(row.name, "all", "warm-up", value, "rounds", taken.num_warm, label, row.conditions)
