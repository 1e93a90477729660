"""What the machine itself does, whatever runs on it."""

from __future__ import annotations

from esper.bench.lazily import measured_by
from esper.bench.row import Measurement, Row

ROWS: tuple[Row, ...] = (Measurement("machine-limits", "machine", measured_by("limits:measure")),)
