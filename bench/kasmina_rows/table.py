"""The rows and their arms, loaded once they are measured."""

from __future__ import annotations

from esper.bench.agreement import Tolerance
from esper.bench.arm import Arm
from esper.bench.lazily import lazily, measured_by
from esper.bench.row import Comparison, Measurement, Row

FAMILY, HERE = "kasmina", "kasmina_rows"
ROUNDING = Tolerance(relative=1e-4, absolute=1e-5)  # of float32, over a step


def arm(name: str, where: str, *given: object) -> Arm:
    return lazily(name, where, *given, below=HERE)


OPTIMIZERS = Comparison(
    "kasmina-optimizers",
    FAMILY,
    arms=(
        arm("one AdamW", "optimizers:one_for_all"),
        arm("one AdamW, fused", "optimizers:one_for_all", "fused"),
        arm("64 AdamW", "optimizers:one_each"),
        arm("ours", "optimizers:ours"),
        arm("ours, clipped", "optimizers:ours", "clipped"),
        arm("ours, fused", "optimizers:ours", "fused"),
        arm("ours, 8 rates", "optimizers:ours", "8 rates"),
        arm("ours, 64 rates", "optimizers:ours", "64 rates"),
        arm("its bytes moved", "optimizers:moved"),
    ),
    shape="step of 64 seeds of 8,352 parameters each",
    tolerance=ROUNDING,
    limit="its bytes moved",
    is_placed=True,
)

WIDTHS = "4 layers of 512, 1 M parameters, batch of 128"

PRUNED = Comparison(
    "kasmina-pruned-step",
    FAMILY,
    arms=(
        arm("bare step", "pruning:bare"),
        arm("gates on outputs", "pruning:gated", "channels"),
        arm("a whole layer", "pruning:gated", "layer"),
        arm("5,120 single weights", "pruning:gated", "weights"),
        arm("weights in place", "pruning:InPlace.ready"),
        arm("parametrize", "pruning:Parametrized.ready"),
    ),
    shape=f"{WIDTHS}; a quarter of the channels pruned",
    tolerance=ROUNDING,
    is_placed=True,
)

MEASURED = Comparison(
    "kasmina-importance",
    FAMILY,
    arms=(
        arm("bare step", "pruning:Arm.ready"),
        arm("every step", "pruning:Gated.ready", None, 1),
        arm("every 8 steps", "pruning:Gated.ready", None, 8),
        arm("every 32 steps", "pruning:Gated.ready", None, 32),
        arm("weights and gradients read once", "pruning:read_once"),
    ),
    shape=f"importance of all channels; {WIDTHS}",
    tolerance=ROUNDING,
    limit="weights and gradients read once",
    is_placed=True,
)

MASKS = Comparison(
    "kasmina-masks",
    FAMILY,
    arms=(
        arm("their weights copied", "pruning:copied"),
        arm("prune 512 channels", "pruning:changed", "prune"),
        arm("lift them", "pruning:changed", "lift"),
    ),
    shape="one command of four masks",
    limit="their weights copied",
    is_placed=True,
)

CHECKPOINTS = Comparison(
    "kasmina-checkpoints",
    FAMILY,
    arms=(
        arm("written and synced", "checkpoints:written"),
        arm("checkpoint", "checkpoints:saved"),
        arm("restore", "checkpoints:restored"),
    ),
    shape="5.2 M parameters, AdamW's moments, four seeds",
    limit="written and synced",
    is_heavy=True,
)

ROWS: tuple[Row, ...] = (
    OPTIMIZERS,
    PRUNED,
    MEASURED,
    MASKS,
    CHECKPOINTS,
    Measurement("kasmina-64-seeds", FAMILY, measured_by("many:measure", HERE)),
    Measurement("kasmina-arrival", FAMILY, measured_by("arrival:measure", HERE), times=5.0),
    Measurement("kasmina-pull", FAMILY, measured_by("proximal:measure", HERE), times=10.0),
)
