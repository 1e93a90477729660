"""A seed's records: where its newest life begins, and which of them goes first."""

from __future__ import annotations

from collections.abc import Sequence

from esper.leyline import contracts as pb
from esper.leyline.lifecycle import CULLED, FOSSILIZED, GERMINATED

MOST_RECORDS = 64
"""Of one seed: five or six lives, or one with as many failed gates."""


def newest_birth(history: Sequence[pb.StageRecord]) -> int | None:
    """Place of the germination that began the newest life; None where none has passed."""
    births = [place for place, record in enumerate(history) if record.stage == GERMINATED and record.passed]
    return births[-1] if births else None


def dispensable(history: Sequence[pb.StageRecord]) -> int:
    """Place of the record that goes first: the oldest of an earlier life; of the newest life the oldest gate that it
    failed, else its oldest record behind its birth. So no time spent in a stage is lost with a failed gate.
    """
    if newest_birth(history) != 0:
        return 0
    return next((place for place, record in enumerate(history) if _is_failed_gate(record)), 1)


def counts_for_life(history: Sequence[pb.StageRecord], place: int) -> bool:
    """Whether this is a gate that the newest life failed before it ended."""
    born = newest_birth(history)
    if born is None or place < born or not _is_failed_gate(history[place]):
        return False
    return not any(record.stage in (FOSSILIZED, CULLED) for record in history[born:place])


def _is_failed_gate(record: pb.StageRecord) -> bool:
    return bool(record.gate) and not record.passed
