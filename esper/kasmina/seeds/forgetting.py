"""Which records and which seeds go first: neither may grow with the length of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from esper.errors import RefusedError
from esper.kasmina.seeds.seed import Seed
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import DORMANT, TERMINATED
from esper.leyline.validate import bounds

MOST_OVER = 64
"""Seeds that are over, as they are told of in heartbeats, reports and checkpoints."""
MOST_LIVING = bounds.NUM_SEEDS - MOST_OVER
"""All others: those that hold a site, and those that are part of the model. A heartbeat names no more of both."""


def forgotten(seeds: Iterable[Seed], fossils: Collection[str]) -> list[str]:
    """Ids of seeds that are over, but for the 64 of which the newest record is the newest; those of a step in the
    order in which they were first germinated. All ranks forget alike.
    """
    over = sorted(_over(seeds, fossils), key=lambda seed: seed.history[-1].step if seed.history else 0)
    return [seed.seed_id for seed in over[: max(len(over) - MOST_OVER, 0)]]


def require_room(seeds: Collection[Seed], fossils: Collection[str]) -> None:
    """RefusedError where there is none for one more seed."""
    num_living = len(seeds) - len(_over(seeds, fossils))
    if num_living >= MOST_LIVING:
        detail = f"{num_living} seeds hold a site or are part of the model; expected fewer than {MOST_LIVING}"
        raise RefusedError(pb.ReasonCode.REASON_NOT_SUPPORTED, detail)


def _over(seeds: Iterable[Seed], fossils: Collection[str]) -> Sequence[Seed]:
    """DORMANT again, or TERMINATED and no part of the model."""
    return [seed for seed in seeds if seed.stage in (DORMANT, TERMINATED) and seed.seed_id not in fossils]
