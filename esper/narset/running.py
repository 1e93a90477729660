"""Figures that only grow, folded from aggregates in their order: what somebody who looks now and then can compare."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from esper.errors import SettingError
from esper.leyline import contracts as pb
from esper.narset.sketch import read_sketch
from esper.narset.transient_metrics import lasting
from esper.narset.units import in_base_unit, split_labels

BOUNDS = tuple(float(f"{digit}e{power}") for power in range(-5, 5) for digit in (1, 2.5, 5))
MOST_BOUNDS = 100
KINDS = ("packets", "messages", "duplicates", "gaps", "shed", "out_of_order", "late", "skewed")


@dataclass(slots=True)
class Series:
    """One metric, in its base unit. `at_most` says of each bound how many values do not exceed it."""

    at_most: list[int]
    count: int = 0
    sum: float = 0.0
    num_non_finite: int = 0
    last: float = 0.0
    last_timestamp_ns: int = 0


@dataclass(slots=True)
class Running:
    """Counts of packets, and a histogram of each metric with bounds that stay.

    Each aggregate's sketch is read on its own and its counts are added, so that no count ever falls, as it might
    between two readings of one sketch that goes on growing. Each reading is within the sketch's stated rank error.
    """

    bounds: tuple[float, ...] = BOUNDS
    sequence: int = 0  # of the newest aggregate
    max_step: int = 0
    last_timestamp_ns: int = 0
    packets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    levels: dict[str, int] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)

    def add(self, aggregate: pb.AggregatedTelemetry) -> None:
        """Fold one aggregate over packets that were not folded before."""
        self.sequence = aggregate.sequence
        self.max_step = max(self.max_step, aggregate.max_step)
        self.last_timestamp_ns = max(self.last_timestamp_ns, aggregate.last_timestamp_ns)
        for kind in KINDS:
            self.packets[kind] += getattr(aggregate, f"num_{kind}")
        for level, number in aggregate.level_counts.items():
            self.levels[level] = self.levels.get(level, 0) + number
        for name, statistics in lasting(aggregate.metrics).items():
            self._fold(self.series.setdefault(name, Series([0] * len(self.bounds))), name, statistics)

    def _fold(self, series: Series, name: str, statistics: pb.MetricStatistics) -> None:
        series.num_non_finite += statistics.num_non_finite
        if not statistics.count:
            return
        factor = in_base_unit(split_labels(name)[0])[1]
        at_most = counts_at_most(statistics, [bound / factor for bound in self.bounds])
        series.at_most = [before + more for before, more in zip(series.at_most, at_most, strict=True)]
        series.count += statistics.count
        series.sum += statistics.sum * factor
        if statistics.last_timestamp_ns >= series.last_timestamp_ns:
            series.last, series.last_timestamp_ns = statistics.last * factor, statistics.last_timestamp_ns

    def dump(self) -> bytes:
        """All of it, as JSON."""
        return json.dumps(asdict(self)).encode()


def load(data: bytes) -> Running:
    """What `dump` wrote."""
    fields: dict[str, Any] = json.loads(data)
    fields["bounds"] = tuple(fields["bounds"])
    fields["series"] = {name: Series(**series) for name, series in fields["series"].items()}
    return Running(**fields)


def checked_bounds(text: str) -> tuple[float, ...]:
    """Upper ends of buckets out of `0.1,1,10`; BOUNDS of an empty text. SettingError where they do not rise."""
    if not text:
        return BOUNDS
    try:
        bounds = tuple(map(float, text.split(",")))
    except ValueError:
        bounds = ()
    rising = all(below < above for below, above in pairwise(bounds))
    if not 1 <= len(bounds) <= MOST_BOUNDS or not rising or not all(map(math.isfinite, bounds)):
        raise SettingError(
            "buckets", text, f"1 to {MOST_BOUNDS} finite numbers with commas between, each above the last"
        )
    return bounds


def counts_at_most(statistics: pb.MetricStatistics, bounds: Sequence[float]) -> list[int]:
    """How many of the values do not exceed each bound, of bounds that rise; by the sketch.

    Of an aggregate too large to carry its sketches all that is known is that none exceeds the maximum.
    """
    sketch = read_sketch(statistics.sketch)
    if sketch.is_empty():
        return [statistics.count if bound >= statistics.max else 0 for bound in bounds]
    shares = sketch.get_cdf(list(bounds), True)[:-1]
    return [round(share * statistics.count) for share in shares]


def bins(statistics: pb.MetricStatistics, num_bins: int = 30) -> list[tuple[float, int]]:
    """Upper end and number of values of equally wide bins from minimum to maximum; a single one of equal values."""
    low, high = statistics.min, statistics.max
    width = (high - low) / num_bins
    ends = [low + width * place for place in range(1, num_bins)]
    if not all(below < above for below, above in zip([low, *ends], [*ends, high], strict=True)):
        return [(high, statistics.count)]
    below = [*counts_at_most(statistics, ends), statistics.count]
    return [(end, count - before) for end, count, before in zip([*ends, high], below, [0, *below], strict=False)]
