"""What is drawn for a run: its script, how often that is killed, and what befalls everybody else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Self

import torch
from torch.utils.data import DataLoader

from esper.kasmina.config import KasminaConfig
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from tests.garden import further, rare
from tests.garden.habits import Habits
from tests.garden.hosts import KINDS
from tests.garden.loops import Manner
from tests.garden.odd import ALL, HARMFUL
from tests.garden.plan import varied
from tests.grove.taught import Taught

ROTATES_FROM = 100_000
"""Keys are rotated in lives of these seeds and later ones."""
PRUNES_FROM = 200_000
"""And there is pruning in those of these."""
TEACHES_FROM = 300_000
"""And some of these distil from teachers, or are of compiled hosts."""
ROAMS_FROM = 600_000
"""And these have hosts, optimizers and scripts of every kind that lives in one process have."""
GOES_BACK_FROM = 700_000
"""And these go back more often, most with checkpoints, and compile their hosts with more than one backend."""
ENDS_FROM = 800_000
"""And half of these end in order and are begun again under their name, once or twice, for more steps."""
SHUFFLES_FROM = 900_000
"""And most of these have a loader that shuffles by torch's own generator."""
LETS_GO_ON = {"leader", "runtime", "trim", "rotate"}
"""Troubles that no trainer dies of."""
TROUBLES = ("leader", "runtime", "trainer", "flush", "fall back", "trim", "clock", "leader", "runtime", "trainer")


@dataclass(frozen=True)
class Plan:
    """Of one run."""

    seed: int
    kind: str
    manner: Manner
    settings: KasminaConfig
    lenient: bool
    blueprints: tuple[str, ...]
    num_steps: int  # at least so many
    per_epoch: int
    checkpoints: int  # steps between two of them; 0: none are made
    snapshots: int
    own_host: bool
    eager: float  # commands a step
    troubles: dict[int, str]  # by how often somebody has looked
    pruning: KasminaCheckpointPruningConfig | None = None  # None: it is disabled
    taught: Taught | None = None  # None: by no teacher
    compiles: bool = False  # the host
    backend: str = "eager"
    goes_back: float = 0.08  # share of commands that do
    habits: Habits = field(default_factory=Habits)
    shuffles: bool = False  # its batches, by torch's own generator
    further: tuple[int, ...] = ()  # steps more, of each time that it is begun again once it has ended

    def pruned(self, dice: Random) -> Self:
        """The same with masks applied, watched and taken back, as a rule."""
        pruning = KasminaCheckpointPruningConfig(
            safety_margin=dice.choice([0.3, 0.9]),
            schedule=dice.choice(["one_shot", "cubic"]),
            ramp_steps=dice.choice([2, 7]),
            ramp_every=dice.choice([1, 3]),
            importance_every=dice.choice([0, 1, 2]),
            max_gradient_ratio=dice.choice([1.05, 2.0, 50.0]),
            median_steps=dice.choice([3, 10]),
            watch_steps=dice.choice([4, 30]),
            check_every=dice.choice([1, 4]),
        )
        settings = replace(self.settings, checkpoint_pruning_enabled=dice.random() < 0.7)
        return replace(self, settings=settings, pruning=pruning)

    @classmethod
    def draw(cls, seed: int) -> Plan:
        drawn = cls.plain(seed)
        drawn = drawn.roaming() if seed >= ROAMS_FROM else drawn
        drawn = drawn.going_back() if seed >= GOES_BACK_FROM else drawn
        drawn = drawn.ending() if seed >= ENDS_FROM else drawn
        return replace(drawn, shuffles=seed >= SHUFFLES_FROM and Random(f"shuffles {seed}").random() < 0.8)

    def numbers(self, epoch: int) -> Iterable[Any]:
        """Of this epoch's batches."""
        all_ = range(epoch * self.per_epoch, (epoch + 1) * self.per_epoch)
        return DataLoader(torch.tensor(all_), shuffle=True) if self.shuffles else all_  # type: ignore[arg-type]

    def ending(self) -> Self:
        """The same run, which may not be over when it ends.

        Not with a clock that may be set back to before the newest key: a coordinator that begins then can open nothing.
        """
        dice = Random(f"ends {self.seed}")
        further = tuple(dice.choices([0, 3, 9, 20], k=dice.choice([0, 0, 1, 2])))
        if not further or {"clock", "rotate"} <= {*self.troubles.values()}:
            return self
        manner = replace(self.manner, eventful=0.0)  # what resumes counts its batches by steps, as after a death
        return replace(self, further=further, manner=manner, habits=Habits())

    def going_back(self) -> Self:
        """The same run with more to go back to."""
        dice = Random(f"goes back {self.seed}")
        checkpoints, snapshots = dice.choice([3, 5, self.checkpoints]), dice.choice([10, 40, 10_000])
        backend = dice.choice(["eager", "aot_eager", "aot_eager", "inductor"])
        made = replace(self, checkpoints=checkpoints, snapshots=snapshots, backend=backend)
        return replace(made, goes_back=dice.choice([0.08, 0.25]))

    def roaming(self) -> Self:
        """The same run of any host, by a script that may do more beside its training."""
        dice = Random(f"roams {self.seed}")
        kind = dice.choice([self.kind, *rare.EVERY, "words", "words"])
        kind, manner = rare.drawn(dice, kind, self.manner)
        manner = further.drawn(dice, kind, manner)
        goes_on = LETS_GO_ON.issuperset(self.troubles.values())
        habits = Habits.draw(dice) if goes_on and not self.compiles else Habits()
        return replace(self, kind=kind, manner=manner, habits=replace(habits, attaches_again=False))

    @classmethod
    def plain(cls, seed: int) -> Plan:
        """As runs of several ranks have it, too."""
        dice = Random(seed)
        settings = replace(
            varied(dice),
            cache_size_mb=dice.choice([1, 64]),
            latency_budget_ms=dice.choice([1e9, 0.1]),  # a tenth: the clock has a say
        )
        mild = sorted({*ALL} - HARMFUL)
        num_steps = dice.randint(24, 56)
        times = sorted(dice.sample(range(5, 2 * num_steps), dice.choice([0, 0, 1, 1, 2, 4])))
        kind, manner = dice.choice([*KINDS]), Manner.draw(dice)
        troubles = {at: dice.choice(TROUBLES) for at in times}
        if seed >= ROTATES_FROM:
            rare = Random(f"keys {seed}")
            troubles |= {rare.randrange(3, 2 * num_steps): "rotate" for _ in range(rare.choice([0, 1, 1, 2]))}
        if "trainer" in troubles.values():  # what resumes counts its batches by steps, and one that raised is none
            manner = replace(manner, eventful=0.0)
        drawn = cls(
            seed,
            kind,
            manner,
            settings,
            dice.random() < 0.75,
            tuple(dice.sample(mild, dice.choice([2, 5, len(mild)]))),
            num_steps,
            dice.choice([7, 12, 20]),
            dice.choice([0, 5, 8, 9, 16]),
            dice.choice([10, 16, 40]),
            dice.random() < 0.1 and manner.optimizer != "lbfgs",
            dice.choice([0.1, 0.3, 0.7]),
            troubles,
        )
        drawn = drawn.pruned(Random(f"pruning {seed}")) if seed >= PRUNES_FROM else drawn
        return drawn.widened(1) if seed >= TEACHES_FROM else drawn

    def widened(self, num: int) -> Self:
        """The same run of `num` trainers, of whom most are taught, and some compile their host."""
        dice = Random(f"wider {self.seed}")
        taught = Taught.draw(self.seed, num) if dice.random() < 0.75 else None
        compiles = dice.random() < 0.15
        calm = dice.random() < 0.7 or (taught is not None and not taught.may_fail)  # a batch of NaN is a fault
        manner = replace(self.manner, eventful=0.0) if calm else self.manner
        if compiles:  # torch can't trace it
            manner = replace(manner, checkpoints="")
        return replace(self, taught=taught, compiles=compiles, manner=manner)

    @property
    def by_the_clock(self) -> bool:
        """Whether a seed's latency is measured against a budget that it may miss."""
        return self.settings.latency_budget_ms < 1.0

    @property
    def loses(self) -> bool:
        """Whether Redis loses some of what it held."""
        return not {"flush", "fall back"}.isdisjoint(self.troubles.values())
