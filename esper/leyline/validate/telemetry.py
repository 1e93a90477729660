"""Ranges of measurements and of what aggregators make of them. A measured value may be NaN: it is counted as such."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

from esper.leyline import contracts as pb
from esper.leyline.validate import bounds
from esper.leyline.validate.rounds import seed_states

Names: TypeAlias = tuple[str, ...] | None
"""Of the values of every packet in a message, where none of them holds anything but values; else None."""

NUM_PACKETS = 32
NUM_METRICS = 1024
NUM_LABELS = 32
NUM_ROWS = 4096
CELL_BYTES = 8
MOST_SEQUENCE = 2**64 - 1
SKETCH_BYTES = 64 << 10


def telemetry_frame(message: pb.TelemetryFrame) -> Names:
    """Up to 32 packets of one source, in the order of their sequences."""
    bounds.name("source", message.source)
    bounds.text("region", message.region)
    bounds.count("packets", message.packets, NUM_PACKETS)
    before, names = 0, None
    for inner in message.packets:
        if inner.version != bounds.VERSION:
            bounds.version(inner)
        found = packet(inner, names)
        sequence = inner.sequence
        if sequence <= before:
            raise bounds.refuse("sequence", sequence, f"one above {before}, that of the packet before it")
        if found is not names:
            names = None if before else found
        before = sequence
    return names


def packet(message: pb.TelemetryPacket, known: Names = None) -> Names:
    """One measurement of one source at one step; of names `known` to be sound that object is returned."""
    if len(message.packet_id) > bounds.SHORT_ID:
        bounds.text("packet_id", message.packet_id)
    if len(message.source_subsystem) > bounds.SHORT_ID:
        bounds.text("source_subsystem", message.source_subsystem)
    if message.sequence < 1:
        bounds.at_least("sequence", message.sequence, 1)
    if message.level not in _LEVELS:
        bounds.known("level", message.level, pb.TelemetryLevel.DESCRIPTOR, unknown=True)
    values = message.values
    if len(values) > NUM_METRICS:
        bounds.count("values", values, NUM_METRICS)
    names: Names = tuple(values)  # each value a NaN or not: that is news, and no error
    names = known if names == known else _sound(names)
    if points := message.metrics:
        _points(points)
        names = None
    if events := message.events:
        _events(events)
        names = None
    if message.HasField("system_health"):
        bounds.known("status", message.system_health.status, pb.HealthStatus.DESCRIPTOR, unknown=True)
    return names


@lru_cache(64)  # each up to a quarter of a megabyte
def _sound(names: tuple[str, ...]) -> Names:
    """The same names, as one object however often they are met."""
    for name in names:
        bounds.name("a name in values", name, bounds.NAME_BYTES)
    return names


_LEVELS = frozenset(pb.TelemetryLevel.values())


def metric_schema(message: pb.MetricSchema) -> None:
    """Names of columns, each once, with as many units."""
    names, num_units = tuple(message.names), len(message.units)
    bounds.count("names", names, NUM_METRICS)
    _columns(names)
    if num_units not in (0, len(names)):
        raise bounds.refuse("number of units", num_units, f"none, or {len(names)}")


@lru_cache(64)  # of a refused one nothing is kept
def _columns(names: tuple[str, ...]) -> None:
    bounds.names("names", names, bounds.NAME_BYTES)
    if len(set(names)) != len(names):
        raise bounds.refuse("names", list(names), "each name once")


def columnar_frame(message: pb.ColumnarFrame) -> None:
    """A table of up to 4096 rows, with as many bytes in each column as they take."""
    bounds.name("source", message.source)
    bounds.text("region", message.region)
    first, schema = message.first_sequence, message.schema
    if first < 1:
        bounds.at_least("first_sequence", first, 1)
    if message.level not in _LEVELS:
        bounds.known("level", message.level, pb.TelemetryLevel.DESCRIPTOR, unknown=True)
    if schema.version != bounds.VERSION:
        bounds.version(schema)
    metric_schema(schema)
    num_bytes = len(message.timestamp_ns)
    num_rows, odd = divmod(num_bytes, CELL_BYTES)
    if odd or not 1 <= num_rows <= NUM_ROWS:
        met = f"{num_bytes} bytes"
        raise bounds.refuse("timestamp_ns", met, f"{CELL_BYTES} bytes for each of 1 to {NUM_ROWS} rows")
    if first + num_rows - 1 > MOST_SEQUENCE:
        raise bounds.refuse("first_sequence", first, f"room for {num_rows} rows below {MOST_SEQUENCE}")
    for field, column, columns in (
        ("global_step", message.global_step, 1),
        ("values", message.values, len(schema.names)),
    ):
        num_bytes, expected = len(column), num_rows * columns * CELL_BYTES
        if num_bytes != expected:
            raise bounds.refuse(field, f"{num_bytes} bytes", f"{expected}: {columns} columns of {num_rows} rows")


def aggregate(message: pb.AggregatedTelemetry) -> None:
    """What one window of a tier was folded into."""
    bounds.text("region", message.region)
    bounds.at_least("sequence", message.sequence, 1)
    bounds.count("metrics", message.metrics, NUM_METRICS)
    for name, statistics in message.metrics.items():
        bounds.name("a name in metrics", name, bounds.NAME_BYTES)
        _statistics(name, statistics)
    bounds.count("level_counts", message.level_counts, NUM_LABELS)
    bounds.names("a name in level_counts", message.level_counts)
    _events(message.events)


def emergency_signal(message: pb.EmergencySignal) -> None:
    """A critical packet, named."""
    bounds.known("level", message.level, pb.EmergencyLevel.DESCRIPTOR)
    bounds.text("reason", message.reason, bounds.SENTENCE_BYTES)
    bounds.name("origin", message.origin)
    bounds.texts("attributes", message.attributes, NUM_LABELS)


def system_state(message: pb.SystemStatePacket) -> None:
    """A run's state as seen by one process."""
    if len(message.packet_id) > bounds.SHORT_ID:
        bounds.text("packet_id", message.packet_id)
    if len(message.source_subsystem) > bounds.SHORT_ID:
        bounds.text("source_subsystem", message.source_subsystem)
    if len(message.training_run_id) > bounds.SHORT_NAME:
        bounds.text("training_run_id", message.training_run_id, bounds.NAME_BYTES)
    if len(message.experiment_name) > bounds.SHORT_NAME:
        bounds.text("experiment_name", message.experiment_name, bounds.NAME_BYTES)
    hardware = message.hardware_context
    for name in ("device_type", "device_id", "compute_capability"):
        bounds.text(name, getattr(hardware, name), bounds.NAME_BYTES)
    bounds.measurements("training_metrics", message.training_metrics, NUM_METRICS)
    seed_states(message.seed_states)


def field_report(message: pb.FieldReport) -> None:
    """How a blueprint fared."""
    bounds.name("report_id", message.report_id, bounds.NAME_BYTES)
    bounds.text("seed_id", message.seed_id)
    bounds.name("blueprint_id", message.blueprint_id)
    bounds.known("outcome", message.outcome, pb.FieldReportOutcome.DESCRIPTOR)
    bounds.measurements("metrics", message.metrics)
    bounds.at_least("observed_to_step", message.observed_to_step, message.observed_from_step)
    bounds.text("site", message.site, bounds.NAME_BYTES)
    bounds.known("stage", message.stage, pb.SeedLifecycleStage.DESCRIPTOR, unknown=True)
    bounds.text("detail", message.detail, bounds.SENTENCE_BYTES)


def _points(points: Iterable[pb.MetricPoint]) -> None:
    for position, point in enumerate(points):
        if position >= NUM_METRICS:
            raise bounds.refuse("number of metrics", f"over {NUM_METRICS}", f"at most {NUM_METRICS}")
        bounds.name("metric name", point.name, bounds.NAME_BYTES)
        bounds.known("metric type", point.type, pb.MetricType.DESCRIPTOR, unknown=True)
        bounds.text("unit", point.unit)
        bounds.texts("labels", point.labels, NUM_LABELS)


def _events(events: Iterable[pb.TelemetryEvent]) -> None:
    for position, event in enumerate(events):
        if position >= bounds.NUM_EVENTS:
            raise bounds.refuse("number of events", f"over {bounds.NUM_EVENTS}", f"at most {bounds.NUM_EVENTS}")
        bounds.text("event_id", event.event_id)
        bounds.text("description", event.description, bounds.SENTENCE_BYTES)
        bounds.known("level", event.level, pb.TelemetryLevel.DESCRIPTOR, unknown=True)
        bounds.texts("attributes", event.attributes, NUM_LABELS)


def _statistics(name: str, statistics: pb.MetricStatistics) -> None:
    if len(statistics.sketch) > SKETCH_BYTES:
        raise bounds.refuse(f"sketch of {name}", len(statistics.sketch), f"at most {SKETCH_BYTES} bytes")
    if not statistics.count:
        return
    for field in ("min", "max", "last"):
        bounds.finite(f"{field} of {name}", getattr(statistics, field))
    if statistics.min > statistics.max:
        raise bounds.refuse(f"min of {name}", statistics.min, f"at most its max {statistics.max}")
    # Squares of finite values can overflow: an infinite m2 is honest, a negative one is not.
    if statistics.m2 < 0:
        raise bounds.refuse(f"m2 of {name}", statistics.m2, "at least 0")
