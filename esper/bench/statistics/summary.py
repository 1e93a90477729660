"""The figures of a comparison, from the samples of its arms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from esper.bench.figures import DERIVED, MEASURED, Figure, Ratio, not_measured
from esper.bench.row import Comparison
from esper.bench.statistics.samples import LEVELS, NEEDED, floor_of, outliers, percentile, ratio_of, verdict

AGAIN = " again"
"""Behind the reference's name: the same arm under a second name, which is the A/A control."""
ASKED = {"max": "", "mean": "", "ratio": "p50", "p99 ratio": "p99"}
"""Statistics that a figure is made of only where a goal is of them; of a ratio, which percentile's."""
STATS = (*LEVELS, *ASKED)
"""What a goal may be of."""
PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def figures_of(row: Comparison, samples: Mapping[str, Sequence[float]]) -> Iterator[Figure]:
    """Of seconds of whole samples by arm, the i-th of each from the same round; the control's are under the reference's
    name `again`."""
    reference = next(iter(samples))
    scaled = {name: np.asarray(values) * PER_SECOND[row.unit] / row.calls for name, values in samples.items()}
    against = Against(row, reference, scaled)
    for name in sorted(scaled, key=lambda name: name != reference and name != reference + AGAIN):
        yield from _of_arm(against, name)
    if row.limit in scaled and row.limit != reference:
        yield _per_limit(row, reference, scaled)


class Against:
    """The reference and its control: what every other arm of this run is compared with."""

    def __init__(self, row: Comparison, reference: str, scaled: Mapping[str, NDArray[np.float64]]) -> None:
        self.row, self.reference, self.scaled = row, reference, scaled
        self._controls: dict[str, Ratio] = {}

    def ratio(self, arm: str, stat: str) -> Ratio | None:
        """None for the reference itself. The machine's limit does other work, and gets no verdict; the control gets one
        without the floor, which it makes itself."""
        if arm == self.reference:
            return None
        control = self._control(stat)
        floor = floor_of(control)
        if arm == self.reference + AGAIN:
            return replace(control, floor=floor, verdict=verdict(control, self.row.threshold, 0.0))
        found = replace(self._to_reference(arm, stat), floor=floor)
        return found if arm == self.row.limit else replace(found, verdict=verdict(found, self.row.threshold, floor))

    def _control(self, stat: str) -> Ratio:
        if stat not in self._controls:
            self._controls[stat] = self._to_reference(self.reference + AGAIN, stat)
        return self._controls[stat]

    def _to_reference(self, arm: str, stat: str) -> Ratio:
        return ratio_of(self.scaled[arm], self.scaled[self.reference], self.reference, stat)


def with_goals(row: Comparison, figure: Figure) -> Figure:
    """With the target that the row has for it, if any."""
    for goal in row.goals:
        if (goal.arm, goal.stat) == (figure.arm, figure.stat):
            return replace(figure, target=goal.target, aspiration=goal.aspiration, gate=goal.gate)
    return figure


def _of_arm(against: Against, arm: str) -> Iterator[Figure]:
    row, values = against.row, against.scaled[arm]
    for stat in LEVELS:
        yield with_goals(row, _percentile(against, arm, stat))
    for stat in ASKED:
        if any((goal.arm, goal.stat) == (arm, stat) for goal in row.goals):
            yield with_goals(row, _asked(against, arm, stat))
    num = len(values)
    yield Figure(row.name, arm, "outliers", float(outliers(values)), "samples", num, DERIVED, row.conditions)


def _percentile(against: Against, arm: str, stat: str) -> Figure:
    row, values = against.row, against.scaled[arm]
    num = len(values)
    if num < NEEDED[stat]:
        return Figure(row.name, arm, stat, None, row.unit, num, too_few(num, stat), row.conditions)
    drawn = tuple(values.tolist()) if stat == "p50" else ()
    value, ratio = percentile(values, stat), against.ratio(arm, stat)
    return Figure(row.name, arm, stat, value, row.unit, num, MEASURED, row.conditions, ratio, samples=drawn)


def too_few(num: int, stat: str) -> str:
    return not_measured(f"{num} samples, a {stat} needs {NEEDED[stat]}")


def _asked(against: Against, arm: str, stat: str) -> Figure:
    row, values = against.row, against.scaled[arm]
    num = len(values)
    level = ASKED[stat]
    if level and num < NEEDED[level]:
        return Figure(row.name, arm, stat, None, "x", num, too_few(num, level), row.conditions)
    if level:
        ratio = against.ratio(arm, level)
        return Figure(row.name, arm, stat, ratio.ratio if ratio else 1.0, "x", num, DERIVED, row.conditions, ratio)
    value = float(values.max() if stat == "max" else values.mean())
    return Figure(row.name, arm, stat, value, row.unit, num, MEASURED, row.conditions)


def _per_limit(row: Comparison, reference: str, scaled: Mapping[str, NDArray[np.float64]]) -> Figure:
    """How many times the machine's own limit the reference takes."""
    ratio = ratio_of(scaled[reference], scaled[row.limit], row.limit)
    num = len(scaled[reference])
    return Figure(row.name, reference, "per limit", ratio.ratio, "x", num, DERIVED, row.conditions, ratio)
