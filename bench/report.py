"""What the benchmarks of this folder find: the suite's figures, and how samples of a whole run become them."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from esper.bench.figures import DERIVED, Figure, Ratio, not_measured

CHUNKS = 40
RESAMPLES = 2_000


@dataclass(slots=True)
class Report:
    """Collects figures, so that whoever prints them disturbs no measurement."""

    bench: str
    figures: list[Figure] = field(default_factory=list)

    def add(self, row: str, arm: str, stat: str, value: float, unit: str, num: int, vs: Ratio | None = None) -> None:
        self.put(Figure(row, arm, stat, value, unit, num, vs=vs))

    def put(self, figure: Figure) -> None:
        self.figures.append(figure)

    def aim(self, row: str, arm: str, stat: str, target: float, *, higher: bool = False) -> None:
        """What is asked for of a figure that was put, once; an empty `arm`: of each arm of the row."""
        found = [at for at, each in enumerate(self.figures) if (each.row, each.stat) == (row, stat)]
        for at in found if not arm else [at for at in found if self.figures[at].arm == arm][:1]:
            self.figures[at] = replace(self.figures[at], target=target, higher=higher)

    def aim_ratio(self, row: str, arm: str, stat: str, target: float, *, higher: bool = False) -> None:
        """What is asked for of a figure's ratio to the bare arm, which becomes a figure of its own."""
        for each in [each for each in self.figures if (each.row, each.arm, each.stat) == (row, arm, stat)]:
            if each.vs is not None and each.vs.arm == "bare":
                ratio = Figure(row, arm, "ratio", each.vs.ratio, "x", each.num, DERIVED, vs=each.vs)
                self.put(replace(ratio, target=target, higher=higher))

    def add_missing(self, row: str, arm: str, unit: str, why: str) -> None:
        """An arm that this machine, or this run, does without."""
        self.put(Figure(row, arm, "rate", None, unit, label=not_measured(why)))

    def add_rates(self, row: str, rates: Mapping[str, Sequence[float]], nums: Mapping[str, int], against: str) -> None:
        """Messages per second of each arm, one rate a round, as a ratio to one arm's; `nums`: messages a round."""
        for arm, values in rates.items():
            vs = None if arm == against or against not in rates else by_round(values, rates[against], against)
            self.add(row, arm, "rate", statistics.median(values), "msg/s", nums[arm] * len(values), vs)

    def add_arms(self, row: str, samples: Mapping[str, Sequence[float]], unit: str, against: str = "") -> None:
        """Median and tail of each arm, each also as a ratio to one of them, if it is there."""
        for arm, values in samples.items():
            base = samples.get(against) if arm != against else None
            for stat, level in (("p50", 0.5), ("p99", 0.99)):
                vs = ratio(values, base, against, level) if base else None
                self.add(row, arm, stat, quantile(values, level), unit, len(values), vs)


def quantile(values: Sequence[float], level: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.floor(level * len(ordered)))]


def ratio(values: Sequence[float], base: Sequence[float], arm: str, level: float = 0.5) -> Ratio:
    """Ratio of the quantiles, its interval from the same ratio in each stretch of the run (normal, on the log)."""
    whole = quantile(values, level) / quantile(base, level)
    stretches = zip(chunks(values), chunks(base), strict=True)
    logs = [math.log(quantile(ours, level) / quantile(theirs, level)) for ours, theirs in stretches]
    half = 1.96 * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(arm, whole, whole * math.exp(-half), whole * math.exp(half))


def by_round(values: Sequence[float], base: Sequence[float], arm: str) -> Ratio:
    """Geometric mean of the ratios within each round, its interval by resampling the rounds."""
    logs = [math.log(ours / theirs) for ours, theirs in zip(values, base, strict=True)]
    draw = random.Random(0)
    means = [statistics.fmean(draw.choices(logs, k=len(logs))) for _ in range(RESAMPLES)]
    low, high = quantile(means, 0.025), quantile(means, 0.975)
    return Ratio(arm, math.exp(statistics.fmean(logs)), math.exp(low), math.exp(high))


def chunks(values: Sequence[float]) -> list[Sequence[float]]:
    """Stretches in order of time, equally long, the rest left out."""
    size = len(values) // CHUNKS
    return [values[start : start + size] for start in range(0, size * CHUNKS, size)]
