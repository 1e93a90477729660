"""What a step costs its trainer with a run attached: promise 1."""

from __future__ import annotations

from esper.bench.lazily import measured_by
from esper.bench.row import Measurement, Row

ROWS: tuple[Row, ...] = (
    Measurement("attached", "session", measured_by("attached:small"), times=8.0),
    Measurement("attached-large", "session", measured_by("attached:large"), times=8.0),
)
