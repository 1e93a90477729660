"""How the streams of a run stand as Prometheus gauges, and what a process counts as rows that others can read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from esper.bus.counters import Count
from esper.bus.survey import Group, StreamView

PREFIX = "esper_"


class StreamGauges:
    """The newest survey. Streams and groups that are gone go from here too."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._length = Gauge("esper_stream_length_entries", "Entries of a stream", ("stream",), registry=registry)
        self._groups: list[tuple[Gauge, Callable[[Group], float]]] = [
            (Gauge(f"esper_stream_{name}", text, ("stream", "group"), registry=registry), read)
            for name, text, read in (
                ("lag_entries", "Not handed out yet; NaN: more than is counted", _lag),
                ("pending_entries", "Handed out and not settled", lambda group: group.pending),
                ("oldest_pending_seconds", "Age of the oldest one pending", lambda group: group.oldest_pending_s),
                ("deliveries_max", "Most often that one pending was handed out", lambda group: group.max_attempts),
                (
                    "consumers_active",
                    "Consumers given something lately",
                    lambda group: group.num_active,
                ),
                (
                    "consumers_quiet",
                    "Consumers that were not: gone, or idle",
                    lambda group: group.num_quiet,
                ),
            )
        ]

    def show(self, views: Iterable[StreamView]) -> None:
        """Replace what was shown."""
        for gauge, _ in self._groups:
            gauge.clear()
        self._length.clear()
        for view in views:
            self._length.labels(view.name).set(view.length)
            for group in view.groups:
                for gauge, read in self._groups:
                    gauge.labels(view.name, group.name).set(read(group))


class Repeats(Collector):
    """How many messages were met before and left out, by stream: what deduplication has saved."""

    def __init__(self, counts: Mapping[str, Callable[[], int]]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What a scrape asks for."""
        family = CounterMetricFamily("esper_messages_deduplicated", "Met before, left out", labels=("stream",))
        for stream, read in self._counts.items():
            family.add_metric((stream,), read())
        yield family


def counts_of(registry: CollectorRegistry) -> Sequence[Count]:
    """Every counter of ours in a registry that has counted anything."""
    return [
        Count(sample.name, sample.labels, sample.value)
        for family in registry.collect()
        if family.type == "counter" and family.name.startswith(PREFIX)
        for sample in family.samples
        if sample.name.endswith("_total") and sample.value
    ]


def _lag(group: Group) -> float:
    return math.nan if group.lag is None else group.lag
