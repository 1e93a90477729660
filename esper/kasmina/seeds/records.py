"""A seed's records: where its newest life begins, and which of them goes first."""

from __future__ import annotations

from collections.abc import Sequence

from esper.leyline import contracts as pb
from esper.leyline.lifecycle import CULLED, FOSSILIZED, GERMINATED

OVER = frozenset({FOSSILIZED, CULLED})
MOST_RECORDS = 64
"""Of one seed: five or six lives, or one with as many failed gates."""


def newest_birth(history: Sequence[pb.StageRecord]) -> int | None:
    """Place of the germination that began the newest life; None where none has passed."""
    return _newest_birth(history, [record.stage for record in history])


def _newest_birth(history: Sequence[pb.StageRecord], stages: Sequence[int]) -> int | None:
    births = [place for place, stage in enumerate(stages) if stage == GERMINATED and history[place].passed]
    return births[-1] if births else None


def dispensable(history: Sequence[pb.StageRecord]) -> tuple[int, bool]:
    """Place of the record that goes first, and whether it is a gate that the newest life failed before it ended.

    The oldest of an earlier life; of the newest life the oldest gate that it failed, else its oldest record behind its
    birth. So no time spent in a stage is lost with a failed gate.
    """
    stages = [record.stage for record in history]  # read once: a full history is asked at each record
    if _newest_birth(history, stages) != 0:
        return 0, False
    failed = next((place for place, record in enumerate(history) if record.gate and not record.passed), None)
    if failed is None:
        return 1, False
    return failed, OVER.isdisjoint(stages[:failed])
