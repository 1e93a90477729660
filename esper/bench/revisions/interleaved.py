"""Two revisions beside each other in one run: a process for each, and in each round one call in every process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy

from esper.bench.agreement import DisagreementError, difference
from esper.bench.arm import Arm, Ready
from esper.bench.effort import Effort
from esper.bench.figures import Figure, not_measured
from esper.bench.results import Alarm, Results
from esper.bench.revisions.asked import Child, child
from esper.bench.revisions.worktrees import laid_out, place_of
from esper.bench.row import Comparison, Row
from esper.bench.statistics.summary import figures_of
from esper.bench.timing.comparing import absence, left_out, paired, warm_up
from esper.bench.timing.pairs import Taken
from esper.bench.underway import Underway


@dataclass(frozen=True, slots=True)
class Revisions:
    """Names as git has them, or "." for the checkout as it is; `files` of rows are run in both."""

    baseline: str
    current: str
    files: Sequence[Path] = ()


@dataclass(frozen=True, slots=True)
class Beside:
    """The processes of a run. `again` is of the baseline too: two of equal code differ by where their memory lies."""

    baseline: Child
    again: Child
    current: Child
    anew: Callable[[ExitStack], Beside]
    """Three others of the same revisions, which end with the stack."""

    @property
    def all(self) -> tuple[Child, Child, Child]:
        return (self.baseline, self.again, self.current)


def compare(rows: Sequence[Row], revisions: Revisions, underway: Underway) -> Results:
    """Every arm of these rows: the current revision's as a ratio to the baseline's, whose control is a third process.

    What is slower is measured a second time at once, in other processes, as those of equal code differ for as long as
    they last; it is an alarm if it is slower again. Raises SettingError for a revision that git does not know; a row
    that fails in either is one of `failures`.
    """
    with ExitStack() as stack:
        beside = begun(revisions, stack)
        for row in rows:
            underway.take(row.name, of_row(row, beside, underway.effort, underway.alarms))
    return underway.results()


def begun(revisions: Revisions, stack: ExitStack) -> Beside:
    one, other = place_of(revisions.baseline), place_of(revisions.current)
    before, after = (stack.enter_context(laid_out(name)) for name in (revisions.baseline, revisions.current))
    places = ((one, before), (f"{one} again", before), (other, after))

    def started(stack: ExitStack) -> Beside:
        baseline, again, current = (stack.enter_context(child(*place, revisions.files)) for place in places)
        return Beside(baseline, again, current, started)

    return started(stack)


def of_row(row: Row, beside: Beside, effort: Effort, alarms: list[Alarm]) -> Iterator[Figure]:
    if not isinstance(row, Comparison):
        yield Figure(row.name, "all", "p50", None, "", label=not_measured("it is no comparison of arms"))
        return
    if row.is_heavy and effort.is_quick:
        yield from left_out(row)
        return
    found = {each.name: each.open(row.name) for each in beside.all}
    for arm in row.arms:
        pair = of_arm(row, arm.name, beside)
        lacking = ((name, lacks(told, arm.name, row.calls)) for name, told in found.items())
        why = next((f"{words} ({name})" for name, words in lacking if words), "")
        if why:
            yield absence(pair, pair.arms[1].name, why)
        elif arm.name != row.limit:
            yield from measured(pair, arm.name, beside, effort, alarms)
    for each in beside.all:
        each.close()


def of_arm(row: Comparison, arm: str, beside: Beside) -> Comparison:
    """The same arm at both revisions, which is set up elsewhere."""
    names = (f"{arm} {each.name}" for each in (beside.baseline, beside.current))
    return replace(row, arms=tuple(Arm(name, _elsewhere) for name in names), goals=(), limit="", load=None)


def measured(pair: Comparison, arm: str, beside: Beside, effort: Effort, alarms: list[Alarm]) -> Iterator[Figure]:
    agree(pair, arm, beside)
    taken = timed(pair, arm, beside, effort)
    yield warm_up(pair, taken)
    figures = list(figures_of(pair, taken.samples))
    yield from figures
    if ratio := slower(pair, figures):
        second = in_others(pair, arm, beside, replace(effort, seed=effort.seed + 1))
        if slower(pair, list(figures_of(pair, second.samples))):
            alarms.append(Alarm(pair.name, arm, ratio, p_value(pair, second)))


def agree(pair: Comparison, arm: str, beside: Beside) -> None:
    """Raises DisagreementError where the revisions come to different answers."""
    one, other = (each.answer(arm) for each in (beside.baseline, beside.current))
    if one is None or other is None:
        return
    if words := difference(one, other, pair.tolerance):
        raise DisagreementError(pair.name, pair.arms[0].name, pair.arms[1].name, words)


def timed(pair: Comparison, arm: str, beside: Beside, effort: Effort) -> Taken:
    names = [each.name for each in pair.arms]
    calls = {name: _call(each, arm) for name, each in zip(names, (beside.baseline, beside.current), strict=True)}
    return paired(pair, calls, effort, _call(beside.again, arm))


def in_others(pair: Comparison, arm: str, beside: Beside, effort: Effort) -> Taken:
    with ExitStack() as stack:
        others = beside.anew(stack)
        for each in others.all:
            each.open(pair.name)
        return timed(pair, arm, others, effort)


def slower(pair: Comparison, figures: Sequence[Figure]) -> float:
    """How many times as long the current revision takes, where the verdict is that it is slower; else 0."""
    name = pair.arms[1].name
    ratio = next(figure.vs for figure in figures if (figure.arm, figure.stat) == (name, "p50"))
    return ratio.ratio if ratio is not None and ratio.verdict == "slower" else 0.0


def p_value(pair: Comparison, taken: Taken) -> float:
    """Of rounds in which the current revision took longer, by chance: Wilcoxon's signed ranks, one-sided."""
    ours, base = (np.log(taken.samples[arm.name]) for arm in reversed(pair.arms))
    return float(scipy.stats.wilcoxon(ours, base, alternative="greater").pvalue)


def lacks(told: dict[str, object], arm: str, calls: int) -> str:
    """Why this revision has no such arm to measure; empty where it has."""
    match told:
        case {"why": str(why)}:
            return why
        case {"calls": int(others)} if others != calls:
            return f"there a sample has {others:,} calls, not {calls:,}"
        case {"missing": dict(missing), "arms": list(arms)}:
            return str(missing.get(arm, "")) or ("" if arm in arms else "there is no such arm")
    return "its answer is of another version of the suite"


def _call(each: Child, arm: str) -> Callable[[], float]:
    return lambda: each.call(arm)


def _elsewhere() -> Ready:
    raise RuntimeError("an arm of a revision is set up in its own process")
