"""What telemetry costs: the trainer that makes it, the runtime that seals it, the tier that folds it."""

from __future__ import annotations

from esper.bench.agreement import Tolerance
from esper.bench.lazily import lazily
from esper.bench.row import Comparison, Goal, Row

GENERATION_MS, GENERATION_ASPIRED_MS = 0.5, 0.2  # performance validation, 1.1
FOLD_MS, FOLD_FOUND_MS = 0.2, 0.15  # unified design, 7: telemetry aggregation


def generation(row: str, num: int) -> Comparison:
    """`num` steps' packets by one call; the goal is for one packet, so that more of them stand under a stricter one."""
    return Comparison(
        row,
        "telemetry",
        arms=(
            lazily("array alone", "wire.telemetry:kept_bare", num),
            lazily("trainer", "wire.telemetry:generated", num),
            lazily("runtime, sealed", "wire.telemetry:sealed", num),
        ),
        shape=f"{num} packet{'s' if num > 1 else ''} of five metrics",
        goals=(Goal("trainer", "p50", GENERATION_MS, GENERATION_ASPIRED_MS),),
        limit="array alone",
    )


def aggregation(row: str, num: int, columnar: bool) -> Comparison:
    return Comparison(
        row,
        "telemetry",
        arms=(
            lazily("numpy alone", "wire.telemetry:numpy_alone", num),
            lazily("tier 1", "wire.telemetry:folded", num, columnar),
        ),
        shape=f"{num} {'rows in a table' if columnar else 'packets in a frame'}, five metrics, into one aggregate",
        goals=(Goal("tier 1", "p50", FOLD_MS, FOLD_FOUND_MS),),
        tolerance=Tolerance(relative=1e-9),
        limit="numpy alone",
    )


ROWS: tuple[Row, ...] = (
    generation("telemetry-generation", 1),
    generation("telemetry-generation-32", 32),
    aggregation("aggregation", 32, columnar=False),
    aggregation("aggregation-columns", 256, columnar=True),
)
