"""What loading a kernel costs the step that it falls into."""

from __future__ import annotations

from collections.abc import Iterator

from esper.bench.agreement import Tolerance
from esper.bench.effort import Effort
from esper.bench.figures import Figure, not_measured
from esper.bench.lazily import lazily
from esper.bench.row import Comparison, Goal, Measurement, Row

TARGET_MS, ASPIRED_MS = 0.1, 0.05  # performance validation, 1.1: kernel load from cache
P95_MS, MOST_MS = 0.2, 0.5  # performance validation, 2.1

LOAD = Comparison(
    "kernel-load",
    "kernels",
    arms=(
        lazily("pop and assign", "seeds.grafts:pop_and_assign"),
        lazily("pool to slot", "seeds.grafts:pooled"),
        lazily("pool to slot, and AdamW", "seeds.grafts:pooled_with_optimizer"),
        lazily("refused command", "seeds.grafts:refused"),
        lazily("GERMINATE, pooled", "seeds.grafts:germinated", True),
        lazily("GERMINATE, built", "seeds.grafts:germinated", False),
    ),
    shape="LoRA of rank 4 at a layer of 128, one of 16 sites; pop and assign: a hundred at a time",
    goals=(
        Goal("pool to slot", "mean", TARGET_MS, ASPIRED_MS),
        Goal("pool to slot", "p95", P95_MS, ASPIRED_MS),
        Goal("pool to slot", "max", MOST_MS),
    ),
    tolerance=Tolerance(relative=1e-3, absolute=1e-6),  # of what is added to an output, less that output
    limit="pop and assign",
)


def from_library(_: Effort) -> Iterator[Figure]:
    """There are no artifacts to load yet: blueprints are built in the process, or wait in its pool."""
    for arm in ("cold", "cached on disk"):
        figure = Figure("kernel-library", arm, "mean", None, "ms", label=not_measured("no library yet"))
        yield figure.aimed(TARGET_MS, ASPIRED_MS)


ROWS: tuple[Row, ...] = (LOAD, Measurement("kernel-library", "kernels", from_library, times=1.0))
