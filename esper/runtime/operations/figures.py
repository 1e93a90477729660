"""What a process counts, for a scrape, and as rows that others can read; every name is of the catalogue."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from esper.bus.group.inbox import Inbox
from esper.bus.upkeep.counters import Count
from esper.bus.upkeep.survey import Group, StreamView
from esper.runtime.operations.catalogue import counter, gauge
from esper.runtime.operations.health import Clock, Health, valid_until_ns
from esper.runtime.serving.missing import Missing
from esper.runtime.serving.refusals import Refusals
from esper.version import __version__

TOLD = ("esper_messages_", "esper_entries_", "esper_history_", "esper_missing_")
"""What a person asks Redis for, with `esper streams`: what grows only where something is out of order."""


class HealthMetrics(Collector):
    """Who this process is, and what /readyz would say."""

    def __init__(self, health: Health) -> None:
        self.health = health

    def collect(self) -> Iterator[Metric]:
        """What a scrape asks for."""
        health, vitals = self.health, self.health.vitals
        info, failing = gauge("esper_process_info"), gauge("esper_check_failing")
        told = {"version": __version__, **health.identity}  # `role` is a label of who scrapes it
        info.add_metric([told.get(label, "") for label in ("role", "name", "run", "region", "version")], 1)
        findings = health.ready()
        for finding in findings:
            failing.add_metric([finding.check], finding.status == "fail")
        yield from (info, failing)
        is_ready = all(finding.status != "fail" for finding in findings)
        yield from (shown("esper_ready", is_ready), shown("esper_redis_up", health.is_up()))
        yield shown("esper_redis_round_trip_seconds", vitals.round_trip_s)
        yield shown("esper_clock_skew_seconds", vitals.skew_s)
        if health.keys is not None:
            until_ns = valid_until_ns(health.keys(), health.now_ns())
            yield shown("esper_keyring_valid_until_timestamp_seconds", until_ns / 1e9)


class InboxMetrics(Collector):
    """What inboxes count by themselves, how long ago they read, and how far behind they are."""

    def __init__(self, inboxes: Sequence[Inbox], health: Health) -> None:
        self.inboxes, self.health = inboxes, health

    def collect(self) -> Iterator[Metric]:
        """What a scrape asks for."""
        age, lag = gauge("esper_poll_age_seconds"), gauge("esper_inbox_lag_seconds")
        counted: tuple[tuple[str, Callable[[Inbox], int]], ...] = (
            ("esper_history_lost_total", lambda inbox: inbox.num_history_lost),
            ("esper_entries_reclaimed_total", lambda inbox: inbox.pending.num_reclaimed),
            ("esper_entries_redelivered_total", lambda inbox: inbox.pending.num_redelivered),
            ("esper_entries_vanished_total", lambda inbox: inbox.pending.num_vanished),
        )
        for inbox in self.inboxes:
            age.add_metric(inbox.source[:2], self.health.clock() - inbox.polled_at_s)
        for source, lag_s in self.health.vitals.lags_s.items():
            lag.add_metric(source, lag_s)
        yield from (age, lag)
        for name, read in counted:
            family = counter(name)
            for inbox in self.inboxes:
                family.add_metric(inbox.source[:2], read(inbox))
            yield family


def watch_inboxes(registry: CollectorRegistry, health: Health, inboxes: Sequence[Inbox]) -> None:
    """Show what inboxes count, and let health follow their polls."""
    registry.register(InboxMetrics(inboxes, health))
    for inbox in inboxes:
        stream, group, _ = inbox.source
        health.watch(f"{stream} ({group})", partial(well_at_s, inbox, health.clock))
        health.sources[stream, group] = partial(is_held_back, inbox)


def well_at_s(inbox: Inbox, clock: Clock) -> float:
    """When an inbox last read: or now, where it is held back on purpose."""
    return clock() if inbox.held_back else inbox.polled_at_s


def is_held_back(inbox: Inbox) -> bool:
    return inbox.held_back


class RefusalMetrics(Collector):
    """Shows what a process has refused; a reason appears with its first refusal."""

    def __init__(self, refusals: Refusals) -> None:
        self.refusals = refusals

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What a scrape asks for."""
        refused = counter("esper_messages_refused_total")
        for labels, number in self.refusals.counts.items():
            refused.add_metric(labels, number)
        yield from (refused, counted("esper_messages_refused_untold_total", self.refusals.num_untold))


class MissingMetrics(Collector):
    """How many messages a process has told as lost."""

    def __init__(self, missing: Missing) -> None:
        self.missing = missing

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What a scrape asks for."""
        yield counted("esper_missing_messages_total", self.missing.num_missing)


class Repeats(Collector):
    """How many messages were met before and left out, by stream: what deduplication has saved."""

    def __init__(self, counts: Mapping[str, Callable[[], int]]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What a scrape asks for."""
        family = counter("esper_messages_deduplicated_total")
        for stream, read in self._counts.items():
            family.add_metric((stream,), read())
        yield family


class StreamGauges(Collector):
    """The newest survey. Streams and groups that are gone go from here too."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._views: list[StreamView] = []
        registry.register(self)

    def show(self, views: Iterable[StreamView]) -> None:
        """Replace what was shown."""
        self._views = list(views)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """What a scrape asks for."""
        length = gauge("esper_stream_length_entries")
        for view in self._views:
            length.add_metric((view.name,), view.length)
        yield length
        for name, read in GROUP_GAUGES:
            family = gauge(f"esper_stream_{name}")
            for view in self._views:
                for group in view.groups:
                    family.add_metric((view.name, group.name), read(group))
            yield family


def counts_of(registry: CollectorRegistry) -> Sequence[Count]:
    """What a registry has counted of what went wrong or came twice."""
    return [
        Count(sample.name, sample.labels, sample.value)
        for family in registry.collect()
        if family.type == "counter" and family.name.startswith(TOLD)
        for sample in family.samples
        if sample.name.endswith("_total") and sample.value
    ]


def shown(name: str, value: float, *labels: str) -> GaugeMetricFamily:
    """A gauge of one sample."""
    family = gauge(name)
    family.add_metric(labels, value)
    return family


def counted(name: str, value: float, *labels: str) -> CounterMetricFamily:
    """A counter of one sample."""
    family = counter(name)
    family.add_metric(labels, value)
    return family


def _lag(group: Group) -> float:
    return math.nan if group.lag is None else group.lag


GROUP_GAUGES: tuple[tuple[str, Callable[[Group], float]], ...] = (
    ("lag_entries", _lag),
    ("pending_entries", lambda group: group.pending),
    ("oldest_pending_seconds", lambda group: group.oldest_pending_s),
    ("deliveries_max", lambda group: group.max_attempts),
    ("consumers_active", lambda group: group.num_active),
    ("consumers_quiet", lambda group: group.num_quiet),
)
