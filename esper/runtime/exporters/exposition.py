"""The global tier for Prometheus: counters and histograms that go on where they were after a restart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from esper.bus.connect import Redis
from esper.leyline import contracts as pb
from esper.runtime.exporters.loop import NOTHING, Entry
from esper.runtime.operations.catalogue import counter
from esper.runtime.operations.figures import counted, shown

POSITION, FIGURES, THROUGH = b"position", b"figures", b"through"


class Histogram(Protocol):
    """What is known of one metric, in its base unit."""

    @property
    def at_most(self) -> Sequence[int]: ...
    @property
    def count(self) -> int: ...
    @property
    def sum(self) -> float: ...
    @property
    def num_non_finite(self) -> int: ...
    @property
    def last(self) -> float: ...


class Figures(Protocol):
    """What has been folded. It only grows."""

    @property
    def bounds(self) -> Sequence[float]: ...
    @property
    def sequence(self) -> int: ...
    @property
    def max_step(self) -> int: ...
    @property
    def last_timestamp_ns(self) -> int: ...
    @property
    def packets(self) -> Mapping[str, int]: ...
    @property
    def levels(self) -> Mapping[str, int]: ...
    @property
    def series(self) -> Mapping[str, Histogram]: ...
    def add(self, aggregate: pb.AggregatedTelemetry) -> None: ...
    def dump(self) -> bytes: ...


class Kept(NamedTuple):
    """What an earlier exporter has left: how far it had come, and what it had folded by then."""

    position: str
    figures: bytes
    through: int  # number of the aggregate up to which all is folded already


class Exposition:
    """Keeps what it has folded in one hash of Redis, together with its position: both are of one moment, always.

    Two of one name fold the same and do each other no harm.
    """

    def __init__(self, redis: Redis, record: str, figures: Figures, kept: Kept) -> None:
        self.redis, self.record, self.figures = redis, record, figures
        self.position, self._through = kept.position, kept.through

    @property
    def sequence(self) -> int:
        return self.figures.sequence

    async def write(self, entries: Sequence[Entry]) -> None:
        """Fold what the total that this began with does not hold, and keep all of it."""
        for entry in entries:
            if entry.aggregate.sequence > self._through:
                self.figures.add(entry.aggregate)
                self._through = 0  # from here on all is new, also to a tier that begins anew at 1
        self.position = entries[-1].entry_id
        await self.keep()

    async def keep(self) -> None:
        """Whoever goes on from here has all of it."""
        fields = (POSITION, self.position, FIGURES, self.figures.dump(), THROUGH, str(self._through))
        await self.redis.ask(("HSET", self.record, *fields))


async def kept(redis: Redis, record: str) -> Kept | None:
    """What lies under this key; None: nothing."""
    found = await redis.ask(("HMGET", record, POSITION, FIGURES, THROUGH))
    if found[0] is None:
        return None
    return Kept(found[0].decode() or NOTHING, found[1], int(found[2]))


class Exposed(Collector):
    """What a scrape is answered. `named` splits a metric's name: its own in its base unit, and labels."""

    def __init__(self, figures: Figures, run: str, named: Callable[[str], tuple[str, Mapping[str, str]]]) -> None:
        self.figures, self.run, self._named = figures, run, named

    def collect(self) -> Iterator[Metric]:
        """Every family, with the run as a label of each sample."""
        yield from self._packets()
        yield from self._training()
        for family, members in sorted(self._families().items()):
            yield from self._metric(family, members)

    def _packets(self) -> Iterator[Metric]:
        for kind, number in sorted(self.figures.packets.items()):
            yield counted(f"esper_telemetry_{_LONG.get(kind, kind)}_total", number, self.run)
        levels = counter("esper_telemetry_packets_by_level_total")
        for level, number in sorted(self.figures.levels.items()):
            levels.add_metric((self.run, level.lower()), number)
        yield levels

    def _training(self) -> Iterator[Metric]:
        yield shown("esper_training_steps", self.figures.max_step, self.run)
        yield shown("esper_telemetry_last_timestamp_seconds", self.figures.last_timestamp_ns / 1e9, self.run)

    def _families(self) -> dict[str, list[tuple[dict[str, str], Histogram]]]:
        """By their names; of several that come to one name, each has its own as a label `metric`."""
        families: dict[str, list[tuple[str, dict[str, str], Histogram]]] = {}
        for name, series in sorted(self.figures.series.items()):
            own, labels = self._named(name)
            safe = {_label(label): text for label, text in labels.items()} | {"run": self.run}
            families.setdefault(_safe(own), []).append((name, safe, series))
        return {family: list(_apart(members)) for family, members in families.items()}

    def _metric(self, name: str, members: Sequence[tuple[dict[str, str], Histogram]]) -> Iterator[Metric]:
        histogram = Metric(f"esper_metric_{name}", "As workers measured it", "histogram")
        latest = Metric(f"esper_latest_{name}", "Its newest value", "gauge")
        bad = Metric(f"esper_non_finite_{name}", "Values left out of the histogram", "counter")
        for labels, series in members:
            names, values = tuple(labels), tuple(labels.values())
            one = HistogramMetricFamily(histogram.name, histogram.documentation, labels=names)
            one.add_metric(values, _buckets(self.figures.bounds, series), series.sum)
            histogram.samples += one.samples
            latest.add_sample(latest.name, labels, series.last)
            bad.add_sample(f"{bad.name}_total", labels, series.num_non_finite)
        yield from (histogram, latest, bad)


def _apart(members: Sequence[tuple[str, dict[str, str], Histogram]]) -> Iterator[tuple[dict[str, str], Histogram]]:
    met = Counter(tuple(labels.items()) for _, labels, _ in members)
    for name, labels, series in members:
        yield (labels if met[tuple(labels.items())] == 1 else labels | {"metric": name}), series


def _buckets(bounds: Sequence[float], series: Histogram) -> list[tuple[str, float]]:
    ends = [(repr(bound), float(number)) for bound, number in zip(bounds, series.at_most, strict=True)]
    return [*ends, ("+Inf", float(series.count))]


def _safe(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _label(name: str) -> str:
    """A label's name may begin with no digit, and with no two underscores; ours come last and win."""
    return re.sub(r"^(?=[0-9])", "_", re.sub(r"^_+", "_", _safe(name))) or "_"


_LONG = {kind: f"packets_{kind}" for kind in ("shed", "out_of_order", "late", "skewed")}
