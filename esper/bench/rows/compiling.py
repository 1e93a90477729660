"""Whether a compiled host stays compiled through the lives of seeds."""

from __future__ import annotations

from esper.bench.lazily import measured_by
from esper.bench.row import Measurement, Row

ROWS: tuple[Row, ...] = (Measurement("compile-stability", "compiling", measured_by("recompiling:measure"), times=20.0),)
