"""What every benchmark prints: one JSON object a line, or the same as a table."""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from esper.errors import EsperError

CHUNKS = 40
RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Options:
    """What the person at the keyboard asked for."""

    as_json: bool
    num: int
    seed: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of one arm to another of the same run, with a 95 % interval over stretches of it."""

    arm: str
    ratio: float
    low: float
    high: float

    def as_fields(self) -> dict[str, object]:
        return {"arm": self.arm, "ratio": self.ratio, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Figure:
    """One line. `label` says whether it was measured, derived from measured ones, asked for (target), or why not."""

    row: str
    arm: str
    stat: str
    value: float | None
    unit: str
    num: int = 0
    label: str = "measured"
    vs: Ratio | None = None


@dataclass(slots=True)
class Report:
    """Collects lines and prints them at the end, so that printing disturbs no measurement."""

    bench: str
    lines: list[dict[str, object]] = field(default_factory=list)

    def add(self, row: str, arm: str, stat: str, value: float, unit: str, num: int, vs: Ratio | None = None) -> None:
        self.put(Figure(row, arm, stat, value, unit, num, vs=vs))

    def put(self, figure: Figure) -> None:
        line: dict[str, object] = {"bench": self.bench, "row": figure.row, "arm": figure.arm, "stat": figure.stat}
        line |= {"value": figure.value, "unit": figure.unit, "n": figure.num, "label": figure.label}
        self.lines.append(line | ({"vs": figure.vs.as_fields()} if figure.vs else {}))

    def add_target(self, row: str, stat: str, value: float, unit: str) -> None:
        """What is asked for, beside what was found."""
        self.put(Figure(row, "target", stat, value, unit, label="target"))

    def add_missing(self, row: str, arm: str, unit: str, why: str) -> None:
        """An arm that this machine, or this run, does without."""
        self.put(Figure(row, arm, "rate", None, unit, label=f"not measured: {why}"))

    def add_rates(self, row: str, rates: Mapping[str, Sequence[float]], nums: Mapping[str, int], against: str) -> None:
        """Messages per second of each arm, one rate a round, as a ratio to one arm's; `nums`: messages a round."""
        for arm, values in rates.items():
            vs = None if arm == against or against not in rates else by_round(values, rates[against], against)
            self.put(Figure(row, arm, "rate", statistics.median(values), "msg/s", nums[arm] * len(values), vs=vs))

    def add_arms(self, row: str, samples: Mapping[str, Sequence[float]], unit: str, against: str) -> None:
        """Median and tail of each arm, each also as a ratio to one of them."""
        for arm, values in samples.items():
            for stat, level in (("p50", 0.5), ("p99", 0.99)):
                vs = None if arm == against else ratio(values, samples[against], against, level)
                self.add(row, arm, stat, quantile(values, level), unit, len(values), vs)

    def attempt(self, row: str, measure: Callable[[], None]) -> bool:
        """Measure one row. False where that failed, which is told and keeps no other row from being measured."""
        try:
            measure()
        except (EsperError, RuntimeError) as error:
            print(f"{row}: {error}", file=sys.stderr)
            self.add_missing(row, "all", "", f"failed: {error}")
            return False
        return True

    def show(self, as_json: bool) -> None:
        for line in self.lines:
            print(json.dumps(line) if as_json else as_row(line))


def options(description: str | None, quick: int, full: int) -> Options:
    """Read the command line; `quick` and `full` are how many samples each of the two ways takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="one JSON object a line, and nothing else")
    parser.add_argument("--quick", action="store_true", help="ends within 60 s on two cores")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which arms take turns")
    parser.add_argument("--num", type=int, default=0, help=f"samples of each arm; default {full}, quick {quick}")
    given = parser.parse_args()
    return Options(given.json, given.num or (quick if given.quick else full), given.seed)


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
    logs = [math.log(ours / theirs) for ours, theirs in zip(values, base, strict=False)]
    draw = random.Random(0)
    means = [statistics.fmean(draw.choices(logs, k=len(logs))) for _ in range(RESAMPLES)]
    low, high = quantile(means, 0.025), quantile(means, 0.975)
    return Ratio(arm, math.exp(statistics.fmean(logs)), math.exp(low), math.exp(high))


def chunks(values: Sequence[float]) -> list[Sequence[float]]:
    """Stretches in order of time, equally long, the rest left out."""
    size = len(values) // CHUNKS
    return [values[start : start + size] for start in range(0, size * CHUNKS, size)]


def as_row(line: Mapping[str, object]) -> str:
    start = f"{line['row']:<20} {line['arm']:<11} {line['stat']:<5}"
    if line["value"] is None:
        return f"{start} {line['label']}"
    text = f"{start} {line['value']:>10.4g} {line['unit']:<5} n={line['n']}"
    if line["label"] != "measured":
        text += f" {line['label']}"
    match line.get("vs"):
        case {"arm": arm, "ratio": float(middle), "low": float(low), "high": float(high)}:
            return f"{text}  {middle:.4f} x {arm} [{low:.4f}, {high:.4f}]"
    return text
