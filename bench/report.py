"""What every benchmark prints: one JSON object a line, or the same as a table."""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

CHUNKS = 40


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


@dataclass(slots=True)
class Report:
    """Collects lines and prints them at the end, so that printing disturbs no measurement."""

    bench: str
    lines: list[dict[str, object]] = field(default_factory=list)

    def add(self, row: str, arm: str, stat: str, value: float, unit: str, num: int, vs: Ratio | None = None) -> None:
        line: dict[str, object] = {"bench": self.bench, "row": row, "arm": arm, "stat": stat, "value": value}
        line |= {"unit": unit, "n": num, "label": "measured"}
        self.lines.append(line | ({"vs": vs.as_fields()} if vs else {}))

    def add_arms(self, row: str, samples: Mapping[str, Sequence[float]], unit: str, against: str) -> None:
        """Median and tail of each arm, each also as a ratio to one of them."""
        for arm, values in samples.items():
            for stat, level in (("p50", 0.5), ("p99", 0.99)):
                vs = None if arm == against else ratio(values, samples[against], against, level)
                self.add(row, arm, stat, quantile(values, level), unit, len(values), vs)

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


def chunks(values: Sequence[float]) -> list[Sequence[float]]:
    """Stretches in order of time, equally long, the rest left out."""
    size = len(values) // CHUNKS
    return [values[start : start + size] for start in range(0, size * CHUNKS, size)]


def as_row(line: Mapping[str, object]) -> str:
    start = f"{line['row']:<20} {line['arm']:<11} {line['stat']:<5}"
    text = f"{start} {line['value']:>10.4g} {line['unit']:<5} n={line['n']}"
    match line.get("vs"):
        case {"arm": arm, "ratio": float(middle), "low": float(low), "high": float(high)}:
            return f"{text}  {middle:.4f} x {arm} [{low:.4f}, {high:.4f}]"
    return text
