"""Growing beside its rivals: a graft and its undoing beside PEFT's, and what growth gains beside other training."""

from __future__ import annotations

from collections.abc import Sequence

from esper.bench.agreement import Tolerance
from esper.bench.arm import Arm
from esper.bench.lazily import lazily, measured_by
from esper.bench.row import Comparison, Goal, Measurement, Row

GRAFT_CULL = Comparison(
    "graft-cull",
    "growth",
    arms=(
        lazily("GERMINATE, CULL", "seeds.adapters:germinated_and_culled", False),
        lazily("GERMINATE, CULL, pooled", "seeds.adapters:germinated_and_culled", True),
        lazily("PEFT add, delete", "seeds.adapters:added_and_deleted", needs=["peft"]),
        lazily("made, hooked, unhooked", "seeds.adapters:hooked"),
    ),
    shape="LoRA of rank 4 at one of 16 layers of 128; ours with gate, records and a slot of its own",
    # Two transitions of performance validation, 1.1: 0.3 ms each, better 0.1.
    goals=tuple(Goal(arm, "p50", 0.6, 0.2) for arm in ("GERMINATE, CULL", "GERMINATE, CULL, pooled")),
    tolerance=Tolerance(relative=1e-3, absolute=1e-6),  # of what is added to an output, less that output
    limit="made, hooked, unhooked",
)


def on_gpt2(name: str, where: str, *given: object, needs: Sequence[str] = ()) -> Arm:
    """An arm whose host transformers makes."""
    return lazily(name, where, *given, needs=["transformers", *needs])


GPT2 = "GPT-2 of 4 layers of 128, 867,000 parameters"

GPT2_GRAFT_CULL = Comparison(
    "gpt2-graft-cull",
    "growth",
    arms=(
        on_gpt2("GERMINATE, CULL", "seeds.gpt2_grafts:germinated_and_culled"),
        on_gpt2("PEFT add, delete", "seeds.gpt2_grafts:added_and_deleted", needs=["peft"]),
        on_gpt2("made, hooked, unhooked", "seeds.gpt2_grafts:hooked"),
    ),
    shape=f"{GPT2}; LoRA of rank 4 at a layer of 128 x 512",
    tolerance=GRAFT_CULL.tolerance,
    limit="made, hooked, unhooked",
)

# Arms agree on the loss of the first step, and on the embedding after it.
GPT2_STEP = Comparison(
    "gpt2-step",
    "growth",
    arms=(
        on_gpt2("model alone", "seeds.gpt2:step_alone"),
        on_gpt2("four dormant", "seeds.gpt2:step_slotted", "dormant"),
        on_gpt2("four training", "seeds.gpt2:step_slotted", "training"),
        on_gpt2("four blending", "seeds.gpt2:step_slotted", "blending"),
        on_gpt2("PEFT, four adapters", "seeds.gpt2:step_adapted", needs=["peft"]),
    ),
    shape=f"{GPT2}; 4 x 64 tokens, LoRA of rank 4 at four layers of 128 x 512; all learn",
    tolerance=Tolerance(absolute=1e-4),
    limit="model alone",
)

ROWS: tuple[Row, ...] = (
    GRAFT_CULL,
    GPT2_GRAFT_CULL,
    GPT2_STEP,
    Measurement("growth", "growth", measured_by("growth.growing:measure"), times=50.0),
)
