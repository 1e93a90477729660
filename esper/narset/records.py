"""An aggregate as plain data, with quantiles in place of the sketch that they are read from."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from esper.leyline import contracts as pb
from esper.narset.running import KINDS
from esper.narset.sketch import read_sketch

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def record(aggregate: pb.AggregatedTelemetry) -> dict[str, Any]:
    """For JSON: numbers as numbers, null for what is infinite, the time in UTC."""
    return {
        "sequence": aggregate.sequence,
        "time": _time(aggregate.last_timestamp_ns),
        "first_timestamp_ns": aggregate.first_timestamp_ns,
        "last_timestamp_ns": aggregate.last_timestamp_ns,
        "max_step": aggregate.max_step,
        "partial": aggregate.partial,
        **{f"num_{kind}": getattr(aggregate, f"num_{kind}") for kind in KINDS},
        "level_counts": dict(sorted(aggregate.level_counts.items())),
        "metrics": {name: _metric(statistics) for name, statistics in sorted(aggregate.metrics.items())},
        "events": [_event(event) for event in aggregate.events],
    }


def _metric(statistics: pb.MetricStatistics) -> dict[str, Any]:
    counted: dict[str, Any] = {"count": statistics.count, "num_non_finite": statistics.num_non_finite}
    if not statistics.count:
        return counted
    measured = {name: getattr(statistics, name) for name in ("sum", "mean", "m2", "min", "max", "last")}
    sketch = read_sketch(statistics.sketch)
    if not sketch.is_empty():
        measured |= {name: sketch.get_quantile(rank) for name, rank in QUANTILES.items()}
    return counted | {name: value if math.isfinite(value) else None for name, value in measured.items()}


def _event(event: pb.TelemetryEvent) -> dict[str, Any]:
    level = pb.TelemetryLevel.Name(event.level).removeprefix("TELEMETRY_")
    return {"level": level, "description": event.description, "attributes": dict(event.attributes)}


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 1_000 / 1e6, UTC).isoformat(timespec="milliseconds")
