"""Growing beside its rivals: a graft and its undoing beside PEFT's, and what growth gains beside other training."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

from esper.bench.agreement import Tolerance
from esper.bench.lazily import lazily, measured_by
from esper.bench.row import Comparison, Goal, Measurement, Row


def without_peft() -> str:
    return "" if find_spec("peft") is not None else "peft is not installed"


GRAFT_CULL = Comparison(
    "graft-cull",
    "growth",
    arms=(
        lazily("GERMINATE, CULL", "adapters:germinated_and_culled", False),
        lazily("GERMINATE, CULL, pooled", "adapters:germinated_and_culled", True),
        replace(lazily("PEFT add, delete", "adapters:added_and_deleted"), missing=without_peft),
        lazily("made, hooked, unhooked", "adapters:hooked"),
    ),
    unit="ms",
    shape="LoRA of rank 4 at one of 16 layers of 128; ours with gate, records and a slot of its own",
    # Two transitions of performance validation, 1.1: 0.3 ms each, better 0.1.
    goals=tuple(Goal(arm, "p50", 0.6, 0.2) for arm in ("GERMINATE, CULL", "GERMINATE, CULL, pooled")),
    tolerance=Tolerance(relative=1e-3, absolute=1e-6),  # of what is added to an output, less that output
    limit="made, hooked, unhooked",
)

ROWS: tuple[Row, ...] = (GRAFT_CULL, Measurement("growth", "growth", measured_by("growing:measure")))
