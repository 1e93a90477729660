"""A seed's records: where its newest life begins, and which of them goes first."""

from __future__ import annotations

from collections.abc import Sequence

from esper.leyline import contracts as pb
from esper.leyline.lifecycle import CULLED, FOSSILIZED, GERMINATED

OVER = (FOSSILIZED, CULLED)
MOST_RECORDS = 64
"""Of one seed: five or six lives, or one with as many failed gates."""


def newest_birth(history: Sequence[pb.StageRecord]) -> int | None:
    """Place of the germination that began the newest life; None where none has passed."""
    births = [place for place, record in enumerate(history) if record.stage == GERMINATED and record.passed]
    return births[-1] if births else None


def dispensable(history: Sequence[pb.StageRecord]) -> tuple[int, bool]:
    """Place of the record that goes first, and whether it is a gate that the newest life failed before it ended.

    The oldest of an earlier life; of the newest life the oldest gate that it failed, else its oldest record behind its
    birth. So no time spent in a stage is lost with a failed gate.
    """
    failed = over = None
    for place in range(len(history) - 1, -1, -1):  # to the newest birth, once: a full history is asked at each record
        record = history[place]
        if record.gate and not record.passed:
            failed = place
        if record.stage in OVER:
            over = place
        if record.stage == GERMINATED and record.passed:
            break
    else:
        return 0, False
    if place > 0:
        return 0, False
    return failed or 1, failed is not None and (over is None or failed <= over)
