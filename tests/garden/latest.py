"""What lives from the four hundred thousandth on have besides: groups of parameters, and processes behind others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from tests.garden.manners import EIGHT_BITS

if TYPE_CHECKING:
    from tests.garden.manners import Manner
    from tests.garden.plan import Plan

FIRST_SEED = 400_000
"""Lives before this one are kept as they were drawn."""
AHEAD_NS = 600 * 10**9
"""By this much the clock of a run's first process may be ahead of those of the ones behind it."""
ONE_GROUP = ("lbfgs", EIGHT_BITS)
ROOMS = (130, 300, 600, 1_200)


@dataclass(frozen=True)
class Again:
    """One more process of a run that has ended."""

    harm: str = ""  # to the newest checkpoint, where it is not the only one: torn or gone
    num: int = 10_000  # acts that it does at most
    closes: bool = True  # in order; else it is killed

    @classmethod
    def draw(cls, dice: Random) -> Again:
        return cls(dice.choice(["", "torn", "gone"]), dice.choice([0, 1, 5, 9, 10_000]), dice.random() < 0.5)


def drawn(plan: Plan) -> Plan:
    """The same life; who has no checkpoints most often gets some, as else there is nothing to begin again from."""
    dice = Random(f"latest {plan.seed}")
    agains = tuple(Again.draw(dice) for _ in range(dice.choice([1, 2, 3])))
    checkpoints = dice.choice([plan.checkpoints, 3, 5])
    manner, settings = _manner(plan.manner, dice), plan.settings
    if plan.wide.crowds:
        settings = replace(settings, seeds_memory_bytes=dice.choice(ROOMS))
    return replace(
        plan, manner=manner, settings=settings, checkpoints=checkpoints, agains=agains, is_ahead=dice.random() < 0.3
    )


def _manner(manner: Manner, dice: Random) -> Manner:
    rates = tuple(dice.choices([0.0, 0.003, 0.02], k=dice.choice([0, 1, 2])))
    if manner.optimizer in ONE_GROUP or manner.scheduler == "plateau":  # it is given a rate for each group
        rates = ()
    return replace(manner, groups=rates, named=dice.random() < 0.4, last=dice.random() < 0.4)
