"""Figures made by hand, for tests of what prints, writes and reads them."""

from __future__ import annotations

from dataclasses import replace

from esper.bench.effort import EFFORTS
from esper.bench.figures import DERIVED, Figure, Ratio, Verdict, not_measured
from esper.bench.machine import Machine
from esper.bench.output.document import Document
from esper.bench.results import Alarm, Results
from esper.errors import EsperError

MACHINE = Machine(
    cpu="Test CPU",
    cores=2,
    memory_bytes=8 << 30,
    gpus=(),
    kernel="Linux 6.1",
    python="3.11.7",
    torch="2.13.0",
    governor="",
    pins={"OMP_NUM_THREADS": "1"},
    threads=1,
    commit="0123456789abcdef",
    dirty=False,
    load_start=0.5,
    load_end=1.5,
)
SAMPLES = (1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 4.0, 5.0, 90.0)


def timed(row: str = "sum", arm: str = "loop", value: float = 3.0, shape: str = "10 numbers") -> Figure:
    return Figure(row, arm, "p50", value, "ms", 10, shape=shape, samples=SAMPLES)


def beside(ratio: float, verdict: Verdict | None = "slower", floor: float | None = 0.02, row: str = "sum") -> Figure:
    """Of an arm that takes `ratio` times the reference's 3 ms."""
    vs = Ratio("loop", ratio, ratio * 0.95, ratio * 1.05, floor, verdict)
    return replace(timed(row, "numpy", 3.0 * ratio), vs=vs, target=2.0, aspiration=1.0)


def absent(why: str = "no GPU") -> Figure:
    return Figure("memory", "fragmentation", "mean", None, "%", label=not_measured(why), target=8.0)


def counted() -> Figure:
    return Figure("memory", "host", "count", 12_345.0, "bytes", 1, DERIVED, higher=True, target=100.0)


def results(*figures: Figure, failures: tuple[EsperError, ...] = (), alarms: tuple[Alarm, ...] = ()) -> Results:
    return Results(figures, failures, alarms, MACHINE, EFFORTS["quick"], 1_700_000_000.0, 1_700_000_012.0)


def document(*figures: Figure) -> Document:
    """All of them, where none is given."""
    given = figures or (timed(), beside(1.2), absent(), counted())
    return Document(results(*given), {"sum": "arithmetic", "memory": "space"})
