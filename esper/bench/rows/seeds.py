"""What seeds and their slots cost: forwards, steps, isolation, the watch over it, and transitions."""

from __future__ import annotations

from esper.bench.agreement import Tolerance
from esper.bench.lazily import lazily, measured_by
from esper.bench.row import Comparison, Goal, Measurement, Row

FORWARD = Comparison(
    "forward-overhead",
    "seeds",
    arms=(
        lazily("model alone", "overheads:forward_alone"),
        lazily("four dormant", "overheads:forward_slotted", "dormant"),
        lazily("four training", "overheads:forward_slotted", "training"),
        lazily("four blending", "overheads:forward_slotted", "blending"),
    ),
    shape="forward with gradients, 67,000 parameters, batch of 128; the seeds ask for 0.8 ms more, here all of it",
    # performance validation, 1.1: overhead of a forward below 0.8 ms, better 0.3; here the forward is part of it
    goals=(Goal("four training", "p50", 0.8, 0.3), Goal("four blending", "p50", 0.8, 0.3)),
    is_placed=True,
    limit="model alone",
)

STEP = Comparison(
    "step-overhead",
    "seeds",
    arms=(
        lazily("model alone", "overheads:step_alone"),
        lazily("four dormant", "overheads:step_slotted", "dormant"),
        lazily("four training", "overheads:step_slotted", "training"),
    ),
    shape="whole training step, 67,000 parameters, batch of 128",
    goals=(Goal("four dormant", "ratio", 1.01),),  # promise 1
    is_placed=True,
    threshold=0.01,
    limit="model alone",
)

ISOLATION = Comparison(
    "gradient-isolation",
    "seeds",
    arms=(
        *(
            lazily(name, "seeds.isolating:passed", name)
            for name in ("host alone", "seeds, nothing between", "two seeds training")
        ),
    ),
    shape="forward and backward, 784-256-128-784, batch of 32, two seeds; host and seeds included",
    # performance validation, 1.1 and 2.1: of the overhead; here the whole pass stands below it
    goals=(Goal("two seeds training", "mean", 8.0, 5.0), Goal("two seeds training", "max", 12.0)),
    is_placed=True,
    limit="host alone",
)


def watch(row: str, num_layers: int) -> Comparison:
    """Unified design, 7: a check below 0.1 ms, found below 0.08; here the seed's own call is part of it."""
    return Comparison(
        row,
        "seeds",
        arms=(
            lazily("bare call", "seeds.isolating:called_alone", num_layers),
            lazily("watched", "seeds.isolating:watched", num_layers, False),
            lazily("close look", "seeds.isolating:watched", num_layers, True),
            lazily("counters alone", "seeds.isolating:counters", num_layers),
        ),
        unit="us",
        shape=f"one call of an MLP seed, host of {2 * num_layers:,} tensors",
        goals=(Goal("watched", "p50", 100.0, 80.0),),
        limit="counters alone",
    )


NORMS = Comparison(
    "gradient-norms",
    "seeds",
    arms=(
        lazily("one by one", "seeds.isolating:normed_singly"),
        lazily("batched", "seeds.isolating:normed_batched"),
        lazily("one pass over the bytes", "seeds.isolating:normed_in_one"),
    ),
    shape="of 64 seeds with four tensors each",
    tolerance=Tolerance(relative=1e-5),
    limit="one pass over the bytes",
    is_placed=True,
)

TRANSITION = Comparison(
    "state-transition",
    "seeds",
    arms=(
        lazily("looked up", "seeds.transitions:looked_up"),
        lazily("START_TRAINING", "seeds.transitions:commanded", "START_TRAINING"),
        lazily("START_GRAFTING, held by G1", "seeds.transitions:commanded", "START_GRAFTING"),
        lazily("CULL", "seeds.transitions:commanded", "CULL"),
    ),
    shape="one command, 16 sites; looked up: a thousand at a time",
    # performance validation, 1.1
    goals=(
        Goal("START_TRAINING", "p50", 0.3, 0.1),
        Goal("START_GRAFTING, held by G1", "p50", 0.3, 0.1),
        Goal("CULL", "p50", 0.3, 0.1),
    ),
    limit="looked up",
)

ROWS: tuple[Row, ...] = (
    FORWARD,
    STEP,
    ISOLATION,
    Measurement("isolation-memory", "seeds", measured_by("seeds.isolating:memory"), times=1.0),
    watch("hook-check", 17),
    watch("hook-check-1000", 500),
    NORMS,
    TRANSITION,
)
