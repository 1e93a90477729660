"""What is drawn for a life: its host, how that is trained, the executor's settings, and what happens at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from esper.kasmina.config import KasminaConfig
from esper.leyline import contracts as pb
from tests.garden import habits, more_hosts
from tests.garden.habits import Habits
from tests.garden.hosts import KINDS, Kind
from tests.garden.loops import Manner
from tests.garden.odd import ALL
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

    @property
    def host(self) -> Kind:
        return {**KINDS, **more_hosts.MORE}[self.kind]

    @classmethod
    def draw(cls, seed: int) -> Plan:
        dice = Random(seed)
        kind = dice.choice([*KINDS])
        settings = replace(varied(dice), cache_size_mb=dice.choice([1, 64]))
        blueprints = tuple(dice.sample([*ALL], dice.choice([2, 5, len(ALL)])))
        lenient, checkpoints = dice.random() < 0.75, dice.choice([0, 0, 0, 7])
        manner, num_steps = Manner.draw(dice), dice.randint(12, 36)
        drawn = Habits.draw(Random(f"habits {seed}")) if seed >= habits.FIRST_SEED else Habits()
        rare = Random(f"host {seed}")
        if seed >= more_hosts.FIRST_SEED and rare.random() < 0.5:
            kind = rare.choice([*more_hosts.MORE])
        return cls(seed, kind, manner, settings, lenient, blueprints, num_steps, checkpoints, drawn)


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

    @property
    def has_order(self) -> bool:
        return bool(self.commands or self.requests or self.snapshot or self.goes_back)
