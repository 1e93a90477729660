"""What gradient checkpointing costs and saves, and what grafting and culling leave behind in memory."""

from __future__ import annotations

from dataclasses import replace

from esper.bench.agreement import Tolerance
from esper.bench.lazily import lazily, measured_by
from esper.bench.row import Comparison, Goal, Measurement, Row

OVERHEAD, OVERHEAD_ASPIRED = 1.20, 1.10  # performance validation, 1.1: +15 to 20 %, one-sided: less is no failure
ROUNDING = Tolerance(absolute=1e-4)  # in units of the root mean square of all values, as answers are given
BATCH = 32


def trained() -> Comparison:
    return Comparison(
        "checkpoint-overhead",
        "memory",
        arms=(
            lazily("plain", "teachers.checkpointed:trained", "plain", BATCH),
            lazily("checkpointed", "teachers.checkpointed:trained", "checkpointed", BATCH),
            lazily("checkpointed by hand", "teachers.checkpointed:trained", "by hand", BATCH),
            lazily("one forward more", "teachers.checkpointed:forward_alone", BATCH),
        ),
        shape=f"{BATCH} x 784-512-256-128-10, its weights learn",
        goals=(Goal("checkpointed", "ratio", OVERHEAD, OVERHEAD_ASPIRED),),
        tolerance=ROUNDING,
        limit="one forward more",
    )


def flowing(row: str, name: str, shape: str) -> Comparison:
    return Comparison(
        row,
        "memory",
        arms=(
            lazily("plain", "teachers.checkpointed:flowing", "plain", name),
            lazily("checkpointed", "teachers.checkpointed:flowing", "checkpointed", name),
            lazily("one forward more", "teachers.checkpointed:flowing_forward", name),
        ),
        shape=shape,
        goals=(Goal("checkpointed", "ratio", OVERHEAD, OVERHEAD_ASPIRED),),
        tolerance=ROUNDING,
        limit="one forward more",
    )


ROWS: tuple[Row, ...] = (
    trained(),
    replace(flowing("checkpoint-overhead-large", "large", "32 x 1024, the large teacher, frozen"), is_heavy=True),
    replace(flowing("checkpoint-overhead-blocks", "blocks", "512 x 256, 12 transformer blocks, frozen"), is_heavy=True),
    Measurement("checkpoint-memory", "memory", measured_by("teachers.kept:measure"), times=1.0),
    Measurement("memory-fragmentation", "memory", measured_by("growth.fragmentation:measure"), times=100.0),
)
