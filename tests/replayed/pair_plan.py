"""What is drawn for a run of two ranks: of one process group, which share gradients, or replicas that are in none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.grove import plan as grove
from tests.grove.plan import Sharing
from tests.replayed.plan import Plan

TROUBLES = ("leader", "runtime", "trainer", "hang", "flush", "fall back", "trim", "clock", "rotate")
WEIGHTS = (3, 3, 4, 3, 1, 1, 2, 2, 3)
OLD_SEEDS = 40_000  # of lives on two ranks
DEADLY = {"trainer", "hang", "flush", "fall back"}
"""What resumes counts its batches by steps, and one that raised is none."""


@dataclass(frozen=True)
class PairPlan(Plan):
    """Of one run. `shared`: of a process group; None: they are replicas."""

    shared: grove.Plan | None = None

    @classmethod
    def draw(cls, seed: int) -> PairPlan:
        dice, base = Random(f"pair {seed}"), Plan.draw(seed)
        times = dice.sample(range(5, 4 * base.num_steps), dice.choice([0, 1, 1, 2, 3, 4]))
        troubles = {at: dice.choices(TROUBLES, WEIGHTS)[0] for at in sorted(times)}
        dies = bool(DEADLY & {*troubles.values()})
        manner = replace(base.manner, eventful=0.0) if dies else base.manner
        drawn = replace(base, troubles=troubles, own_host=False, manner=manner)
        shared = grove.Plan.draw(seed % OLD_SEEDS) if dice.random() < 0.85 else None
        if shared is not None:
            sharing = Sharing.draw(dice, base.kind, shared.manner.num_micro)
            shared = replace(shared, kind=base.kind, sharing=sharing)
            shared = replace(shared, manner=replace(shared.manner, eventful=0.0)) if dies else shared
        made = cls(**vars(drawn) | {"shared": shared})
        return made.pruned(dice) if dice.random() < 0.4 else made

    @property
    def world_size(self) -> int:
        return 1 if self.shared is None else grove.WORLD_SIZE
