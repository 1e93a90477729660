"""What is drawn for a life: its host, how that is trained, the executor's settings, and what happens at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Self

from esper.kasmina.config import KasminaConfig
from esper.leyline import contracts as pb
from tests.garden import besides, further, fuses, habits, later, latest, more_hosts, newest, rare, wide
from tests.garden.habits import Habits
from tests.garden.hosts import KINDS, Kind
from tests.garden.latest import Again
from tests.garden.manners import EIGHT_BITS, OPTIMIZERS, Manner
from tests.garden.odd import ALL
from tests.garden.wide import Wide
from tests.session_kit import Command
from tests.site_kit import OPEN


def varied(dice: Random) -> KasminaConfig:
    """Gates that let all through, and what else decides how a seed lives."""
    return replace(
        OPEN,
        window=dice.choice([2, 4]),
        blend_steps=dice.choice([0, 2, 5]),
        read_every=dice.choice([2, 4, 8]),
        walk_every=dice.choice([1, 5, 50]),
        seeds_per_site=dice.choice([1, 1, 2]),
        embargo_epochs=dice.choice([0, 1]),
        alpha_feedback=dice.random() < 0.7,
        gradient_clip_adaptive=dice.random() < 0.7,
    )


@dataclass(frozen=True)
class Plan:
    """Of one life."""

    seed: int
    kind: str
    manner: Manner
    settings: KasminaConfig
    lenient: bool  # gates that measure loss or gradients let everything through
    blueprints: tuple[str, ...]
    num_steps: int
    checkpoints: int  # steps between two of them; 0: none are made
    habits: Habits = field(default_factory=Habits)
    wide: Wide = field(default_factory=Wide)
    agains: tuple[Again, ...] = (Again(),)  # one after the other, once it has ended
    is_ahead: bool = False  # the clock that it makes checkpoints by
    steps_per_epoch: int = 0
    checkpoints_kept: int = 3
    halts: bool = False  # by an emergency, where the whole run is to pause
    reads: bool = False  # by a loader, whose state goes with checkpoints

    @property
    def host(self) -> Kind:
        return rare.EVERY[self.kind]

    @classmethod
    def draw(cls, seed: int) -> Plan:
        dice = Random(seed)
        kind = dice.choice([*KINDS])
        settings = replace(varied(dice), cache_size_mb=dice.choice([1, 64]))
        blueprints = tuple(dice.sample([*ALL], dice.choice([2, 5, len(ALL)])))
        lenient, checkpoints = dice.random() < 0.75, dice.choice([0, 0, 0, 7])
        manner, num_steps = Manner.draw(dice), dice.randint(12, 36)
        drawn = Habits.draw(Random(f"habits {seed}")) if seed >= habits.FIRST_SEED else Habits()
        other = Random(f"host {seed}")
        if seed >= more_hosts.FIRST_SEED and other.random() < 0.5:
            kind = other.choice([*more_hosts.MORE])
        plan = cls(seed, kind, manner, settings, lenient, blueprints, num_steps, checkpoints, drawn)
        plan = plan.widened() if seed >= wide.FIRST_SEED else plan
        if seed >= rare.FIRST_SEED:
            kind, manner = rare.drawn(Random(f"rare {seed}"), plan.kind, plan.manner)
            plan = replace(plan, kind=kind, manner=manner)
        if seed >= further.FIRST_SEED:
            plan = replace(plan, manner=further.drawn(Random(f"further {seed}"), plan.kind, plan.manner))
        if seed >= rare.MOMENTUM_FROM and plan.kind == "words":
            name = Random(f"momentum {seed}").choice([plan.manner.optimizer, *rare.WITH_MOMENTUM])
            plan = replace(plan, manner=replace(plan.manner, optimizer=name))
        crowds = seed >= fuses.CROWDS_FROM and Random(f"crowds {seed}").random() < 0.2
        plan = plan.crowded() if crowds else plan
        plan = later.drawn(plan) if seed >= later.FIRST_SEED else plan
        plan = latest.drawn(plan) if seed >= latest.FIRST_SEED else plan
        plan = newest.drawn(plan) if seed >= newest.FIRST_SEED else plan
        return besides.drawn(plan) if seed >= besides.FIRST_SEED else plan

    def crowded(self) -> Self:
        """The same life with room for few seeds, of which many are asked for."""
        settings = replace(self.settings, seeds_memory_bytes=fuses.ROOM)
        return replace(self, settings=settings, wide=replace(self.wide, crowds=True))

    def widened(self) -> Self:
        """The same life with what is drawn besides."""
        dice = Random(f"wide {self.seed}")
        drawn, own = Wide.draw(dice), self.habits
        if drawn.steps_by_lease:
            own = replace(own, own_host=True)
        plan = replace(self, habits=own)
        plan = plan.traceable() if drawn.compiles else plan
        manner = plan.manner
        if drawn.compiles == "model":  # its twin is not: attention evaluates otherwise, and errors have other words
            manner = replace(manner, evaluates="", eventful=0.0)
        if EIGHT_BITS in OPTIMIZERS and dice.random() < 0.1:
            manner = replace(manner, optimizer=EIGHT_BITS)
        return replace(plan, manner=manner, wide=drawn, settings=drawn.fitted(self.settings))

    def traceable(self) -> Self:
        """Without what torch can't trace: a model that meets it falls back by itself, and that is torch's."""
        own = replace(self.habits, meddles=0.0, penalty=False, backwards=False)
        return replace(self, habits=own, manner=replace(self.manner, checkpoints=""))


@dataclass(frozen=True)
class Act:
    """What happens before a step, and the number of the batch that the step is given."""

    number: int
    commands: Sequence[Command] = ()
    requests: Sequence[pb.SeedRequest] = ()
    snapshot: bool = False
    goes_back: int = 0  # to the snapshot of this step
    epoch_ends: bool = False
    prefetches: tuple[str, str] | None = None
    paused: bool = False  # the whole run, around the order
    halts: bool = False  # an emergency pauses it
    accuracy: float | None = None  # the script notes it
    exports: bool = False  # importance is told, as at a checkpoint of the script's

    @property
    def has_order(self) -> bool:
        return bool(self.commands or self.requests or self.snapshot or self.goes_back)
