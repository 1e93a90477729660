"""What a seed stands for: who takes part in a world, and what befalls it."""

from __future__ import annotations

import random
from dataclasses import dataclass

LOSSES = ("group", "stream", "flush", "rollback")


@dataclass(frozen=True, slots=True)
class Plan:
    """Rates are per command sent, times in virtual seconds."""

    seed: int
    version: tuple[int, int]
    num_producers: int
    num_workers: int
    num_ranks: int
    num_messages: int  # of each producer
    crash: float
    lost: float
    late: float
    poison: float
    clock_steps: int
    losses: tuple[str, ...]
    adversary: bool
    remembers: str  # how the shared workers know what took effect: by windows, or by a bit each
    quiet_at_s: float


def draw(seed: int) -> Plan:
    """The plan of a seed. Most worlds have a few kinds of trouble, some have all."""
    dice = random.Random(seed)

    def sometimes(share: float, most: float) -> float:
        return dice.uniform(0.1, 1.0) * most if dice.random() < share else 0.0

    losses = tuple(dice.choice(LOSSES) for _ in range(dice.randint(1, 3))) if dice.random() < 0.4 else ()
    return Plan(
        seed=seed,
        version=dice.choice([(6, 2), (7, 0)]),
        num_producers=dice.randint(2, 3),
        num_workers=dice.randint(2, 3),
        num_ranks=dice.randint(1, 2),
        num_messages=dice.randint(8, 20),
        crash=sometimes(0.7, 0.03),
        lost=sometimes(0.7, 0.06),
        late=sometimes(0.5, 0.01),
        poison=sometimes(0.4, 0.06),
        clock_steps=dice.choice([0, 0, 1, 3]),
        losses=losses,
        adversary=dice.random() < 0.5,
        remembers=dice.choice(["windows", "bits"]),
        quiet_at_s=dice.uniform(15.0, 30.0),
    )
