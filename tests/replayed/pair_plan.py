"""What is drawn for a run of several ranks: of a process group, which share gradients, or replicas that are in none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Self

from tests.grove import plan as grove
from tests.grove.plan import Sharing
from tests.replayed.plan import Plan

TROUBLES = ("leader", "runtime", "trainer", "hang", "flush", "fall back", "trim", "clock", "rotate")
WEIGHTS = (3, 3, 4, 3, 1, 1, 2, 2, 3)
OLD_SEEDS = 40_000  # of lives on two ranks
TEACHES_FROM = 60_000  # as in plan.py; of groups a quarter are of three ranks, with schedulers and copies of the host
LATE_FROM = 90_000
"""Of replicas of these seeds one may begin when the other has trained for a while."""
SHARDS_FROM = 180_000
"""Half of the groups of these seeds hold a model together that fully_shard has split."""
DEADLY = {"trainer", "hang", "flush", "fall back"}
"""What resumes counts its batches by steps, and one that raised is none."""


@dataclass(frozen=True)
class PairPlan(Plan):
    """Of one run. `shared`: of a process group; None: they are replicas."""

    shared: grove.Plan | None = None
    late: int = 0  # the last replica begins when somebody has looked so often; 0: with the others

    @classmethod
    def draw(cls, seed: int) -> PairPlan:
        dice, base = Random(f"pair {seed}"), Plan.plain(seed)
        times = dice.sample(range(5, 4 * base.num_steps), dice.choice([0, 1, 1, 2, 3, 4]))
        troubles = {at: dice.choices(TROUBLES, WEIGHTS)[0] for at in sorted(times)}
        dies = bool(DEADLY & {*troubles.values()})
        manner = replace(base.manner, eventful=0.0) if dies else base.manner
        drawn = replace(base, troubles=troubles, own_host=False, manner=manner)
        wider = seed >= TEACHES_FROM
        shared = grove.Plan.draw(seed if wider else seed % OLD_SEEDS) if dice.random() < 0.85 else None
        if shared is not None:
            sharing = Sharing.draw(dice, base.kind, shared.manner.num_micro)
            shared = replace(shared, kind=base.kind, sharing=sharing, shards=None)
            shared = replace(shared, manner=replace(shared.manner, eventful=0.0)) if dies else shared
        made = cls(**vars(drawn) | {"shared": shared})
        made = made.pruned(dice) if dice.random() < 0.4 else made
        made = made.widened(made.num) if wider else made
        made = made.joined_late() if seed >= LATE_FROM and shared is None else made
        dice = Random(f"shards {seed}")
        return made.sharded(dice) if seed >= SHARDS_FROM and dice.random() < 0.5 else made

    def sharded(self, dice: Random) -> Self:
        """The same with a host that is split, if it is a group; nothing of it is pruned or taught."""
        if self.shared is None:
            return self
        shared = self.shared.sharded(dice)
        settings = replace(self.settings, checkpoint_pruning_enabled=False)
        return replace(self, shared=shared, kind=shared.kind, settings=settings, pruning=None, taught=None)

    def joined_late(self) -> Self:
        """The same replicas, of which one comes later, or when the other has ended."""
        return replace(self, late=Random(f"late {self.seed}").choice([0, 4, 20, 60, 10_000]))

    def widened(self, num: int) -> Self:
        made, shared = super().widened(num), self.shared
        if shared is None:
            return made
        calm = made.manner.eventful == 0.0
        manner = replace(shared.manner, eventful=0.0) if calm else shared.manner
        return replace(made, shared=replace(shared, manner=manner, more=replace(shared.more, compiles=made.compiles)))

    @property
    def world_size(self) -> int:
        return 1 if self.shared is None else self.shared.more.world_size

    @property
    def num(self) -> int:
        """How many trainers there are."""
        return grove.WORLD_SIZE if self.shared is None else self.world_size
