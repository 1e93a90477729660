"""Every metric that a process of a run shows at /metrics, in one table; what is not in it can't be shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
EVERY = "every role"
READERS = "coordinator, regional, global, runtime"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row: the name as it is scraped, its labels, who shows it, and what it says. Units are Prometheus's."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    roles: str
    text: str

    @property
    def family(self) -> str:
        """The name as the library takes it."""
        return self.name.removesuffix("_total")


GROUP = ("stream", "group")
RUN = ("run",)
WORKER = ("worker",)

METRICS = (
    Metric(
        "esper_process_info",
        "gauge",
        ("process", "name", "run", "region", "version"),
        EVERY,
        "1; says which process this is, of which run",
    ),
    Metric("esper_ready", "gauge", (), EVERY, "1 where /readyz answers 200, else 0"),
    Metric("esper_check_failing", "gauge", ("check",), EVERY, "1 for each check of /readyz that fails, else 0"),
    Metric("esper_redis_up", "gauge", (), EVERY, "1 where Redis answered the last look, else 0"),
    Metric("esper_redis_round_trip_seconds", "gauge", (), EVERY, "How long Redis took to answer the last look"),
    Metric("esper_clock_skew_seconds", "gauge", (), EVERY, "This machine's clock ahead of that of Redis"),
    Metric(
        "esper_keyring_valid_until_timestamp_seconds",
        "gauge",
        (),
        EVERY,
        "When the last of the keys held ends; 0: none is valid",
    ),
    Metric("esper_poll_age_seconds", "gauge", GROUP, READERS, "Since the last good read"),
    Metric("esper_inbox_lag_seconds", "gauge", GROUP, READERS, "Age of the oldest entry that its group has not read"),
    Metric("esper_history_lost_total", "counter", GROUP, READERS, "Groups made again after they were lost"),
    Metric("esper_entries_reclaimed_total", "counter", GROUP, READERS, "Entries taken over from consumers that died"),
    Metric(
        "esper_entries_redelivered_total", "counter", GROUP, READERS, "Entries handed over again: not settled before"
    ),
    Metric("esper_entries_vanished_total", "counter", GROUP, READERS, "Entries deleted while they were pending"),
    Metric("esper_messages_refused_total", "counter", ("stream", "reason"), READERS, "Messages refused"),
    Metric(
        "esper_messages_refused_untold_total",
        "counter",
        (),
        READERS,
        "Refused without a letter or receipt, for a flood",
    ),
    Metric("esper_messages_deduplicated_total", "counter", ("stream",), READERS, "Messages met before and left out"),
    Metric("esper_stream_length_entries", "gauge", ("stream",), "coordinator", "Entries of a stream"),
    Metric("esper_stream_lag_entries", "gauge", GROUP, "coordinator", "Not handed out yet; NaN: more than is counted"),
    Metric("esper_stream_pending_entries", "gauge", GROUP, "coordinator", "Handed out and not settled"),
    Metric("esper_stream_oldest_pending_seconds", "gauge", GROUP, "coordinator", "Age of the oldest one pending"),
    Metric("esper_stream_deliveries_max", "gauge", GROUP, "coordinator", "Most often that one pending was handed out"),
    Metric("esper_stream_consumers_active", "gauge", GROUP, "coordinator", "Consumers given something lately"),
    Metric("esper_stream_consumers_quiet", "gauge", GROUP, "coordinator", "Consumers that were not: gone, or idle"),
    Metric("esper_missing_messages_total", "counter", (), "coordinator", "Commands acknowledged by Redis, then lost"),
    Metric("esper_rounds_total", "counter", ("outcome",), "coordinator", "Barrier rounds: committed, aborted"),
    Metric("esper_round_latency_seconds", "histogram", (), "coordinator", "From a round's proposal to its commit"),
    Metric("esper_votes_deviating_total", "counter", (), "coordinator", "Votes whose digests were not those of most"),
    Metric(
        "esper_command_verdicts_total", "counter", ("status", "reason"), "coordinator", "Commands accepted and rejected"
    ),
    Metric("esper_worker_heartbeat_age_seconds", "gauge", WORKER, "coordinator", "Since a worker was last heard of"),
    Metric("esper_aggregates_total", "counter", ("full",), "regional, global", "Windows closed, full or not"),
    Metric("esper_aggregated_packets_total", "counter", (), "regional, global", "Packets in the windows closed"),
    Metric("esper_trainer_heartbeat_age_seconds", "gauge", WORKER, "runtime", "Since the trainer last spoke itself"),
    Metric("esper_trainer_step", "gauge", WORKER, "runtime", "The step that the trainer begins next"),
    Metric("esper_trainer_epoch", "gauge", WORKER, "runtime", "The trainer's epoch"),
    Metric("esper_trainer_loss", "gauge", WORKER, "runtime", "The newest loss read; NaN before the first"),
    Metric("esper_trainer_accuracy_ratio", "gauge", WORKER, "runtime", "The newest accuracy noted; NaN: none"),
    Metric("esper_trainer_seeds", "gauge", ("worker", "stage"), "runtime", "Seeds in each stage of the lifecycle"),
    Metric(
        "esper_trainer_examples_total", "counter", WORKER, "runtime", "Examples trained on; 0: its script does not say"
    ),
    Metric("esper_trainer_packets_total", "counter", WORKER, "runtime", "Packets the trainer has made"),
    Metric("esper_trainer_packets_shed_total", "counter", WORKER, "runtime", "Of them, those dropped at the source"),
    Metric("esper_trainer_steps_waited_total", "counter", WORKER, "runtime", "Steps that waited for a decision"),
    Metric("esper_export_aggregates_written_total", "counter", (), "exporter", "Aggregates carried over"),
    Metric("esper_export_aggregates_refused_total", "counter", (), "exporter", "Aggregates that did not open"),
    Metric(
        "esper_export_aggregates_missing_total", "counter", (), "exporter", "No longer in the stream when it was read"
    ),
    Metric("esper_telemetry_packets_total", "counter", RUN, "exporter", "Packets folded"),
    Metric("esper_telemetry_messages_total", "counter", RUN, "exporter", "Aggregates of regions folded"),
    Metric("esper_telemetry_duplicates_total", "counter", RUN, "exporter", "Packets met again and left out"),
    Metric("esper_telemetry_gaps_total", "counter", RUN, "exporter", "Packets declared missing"),
    Metric("esper_telemetry_packets_shed_total", "counter", RUN, "exporter", "Packets that their sources dropped"),
    Metric(
        "esper_telemetry_packets_out_of_order_total",
        "counter",
        RUN,
        "exporter",
        "Folded after one with a higher number",
    ),
    Metric("esper_telemetry_packets_late_total", "counter", RUN, "exporter", "Folded after they were declared missing"),
    Metric("esper_telemetry_packets_skewed_total", "counter", RUN, "exporter", "From the future by their entry's time"),
    Metric("esper_telemetry_packets_by_level_total", "counter", ("run", "level"), "exporter", "Packets by level"),
    Metric("esper_training_steps", "gauge", RUN, "exporter", "Highest step measured"),
    Metric("esper_telemetry_last_timestamp_seconds", "gauge", RUN, "exporter", "Time of the newest packet"),
)

MEASURED = {
    "esper_metric_": "Histogram of a metric as workers measured it, in its base unit",
    "esper_latest_": "Newest value of a metric",
    "esper_non_finite_": "Values of a metric left out of its histogram: NaN, infinite",
}
"""The exporter shows three families for each metric that workers measure, whose names are the workers'."""

_ROWS = {metric.name: metric for metric in METRICS}


def counter(name: str) -> CounterMetricFamily:
    """A family for one scrape, to be filled. KeyError: the table has no such row."""
    row = _row(name, "counter")
    return CounterMetricFamily(row.family, row.text, labels=row.labels)


def gauge(name: str) -> GaugeMetricFamily:
    """The same, of a gauge."""
    row = _row(name, "gauge")
    return GaugeMetricFamily(row.family, row.text, labels=row.labels)


def histogram(name: str) -> HistogramMetricFamily:
    """The same, of a histogram."""
    row = _row(name, "histogram")
    return HistogramMetricFamily(row.family, row.text, labels=row.labels)


def _row(name: str, kind: Kind) -> Metric:
    row = _ROWS[name]
    if row.kind != kind:
        raise KeyError(f"{name} is a {row.kind}, no {kind}")
    return row
