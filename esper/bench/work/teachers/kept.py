"""What checkpointing saves: bytes kept for the backward and bytes new at most, with and without gradients."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from esper.bench.effort import Effort
from esper.bench.figures import DERIVED, Figure
from esper.bench.work.allocated import peak_bytes
from esper.bench.work.teachers.checkpointed import Way, teacher_named, way_of
from esper.kernels.teacher.telemetry import kept_bytes

ROW, MEGA = "checkpoint-memory", 1e6
WAYS: tuple[Way, ...] = ("plain", "checkpointed")
HALF = 0.5  # performance validation, 1.1: a memory reduction of 50 %


def measure(effort: Effort) -> Iterator[Figure]:
    """Counted, not sampled: the allocator's events and autograd's own saves are the same in each call."""
    for name in ("blocks", "large"):
        teacher, inputs = teacher_named(name)
        flowing = inputs.clone().requires_grad_()
        found: dict[str, dict[str, float]] = {"kept, gradients flow": {}, "new, gradients flow": {}, "new, no_grad": {}}
        for way in WAYS:
            run = way_of(teacher, way)
            found["kept, gradients flow"][way] = kept_bytes(teacher, lambda: run(flowing))  # noqa: B023
            found["new, gradients flow"][way] = peak_bytes(lambda: torch.autograd.grad(run(flowing).sum(), flowing))  # noqa: B023
            with torch.no_grad():
                found["new, no_grad"][way] = peak_bytes(lambda: run(inputs))  # noqa: B023
        for stat, values in found.items():
            yield from _figures(name, stat, values)


def _figures(name: str, stat: str, values: dict[str, float]) -> Iterator[Figure]:
    """Bytes each way, and their ratio beside what the documents expect of it."""
    for way, value in values.items():
        yield Figure(ROW, way, stat, value / MEGA, "MB", 1, shape=name)
    ratio = values["checkpointed"] / values["plain"]
    yield Figure(ROW, "checkpointed", f"{stat}, of plain", ratio, "x", 1, DERIVED, name, target=HALF)
