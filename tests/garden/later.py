"""What lives from the three hundred and ten thousandth on have besides: compilers, and teachers to go back from."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.garden.plan import Plan

FIRST_SEED = 310_000
"""Lives before this one are kept as they were drawn."""


def drawn(plan: Plan) -> Plan:
    """The same life, of which more is compiled, and what is taught has more checkpoints to go back to."""
    dice = Random(f"later {plan.seed}")
    wide, checkpoints = plan.wide, plan.checkpoints
    if dice.random() < 0.2 and not wide.compiles:
        plan, wide = plan.traceable(), replace(wide, compiles="seeds")
    wide = replace(wide, backend=dice.choice(["eager", "aot_eager"]))
    if wide.teaches and dice.random() < 0.6:
        checkpoints = dice.choice([3, 5])
        wide = replace(wide, pauses=dice.choice([0.0, 0.3]))
    settings = wide.compiling(plan.settings)
    return replace(plan, wide=wide, checkpoints=checkpoints, settings=settings)
