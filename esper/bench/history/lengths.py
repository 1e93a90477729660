"""How long a row takes: as in the last such run on this machine, or by the pace of a quick one and what is planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from esper.bench.effort import EFFORTS, Mode
from esper.bench.history.store import Session
from esper.bench.row import Comparison, Row

QUICK, FULL = EFFORTS["quick"], EFFORTS["full"]
AROUND = 1.25  # of an effort's seconds, with the warm-up


@dataclass(frozen=True, slots=True)
class Length:
    """`is_derived`: from the pace of a quick run."""

    seconds: float
    is_derived: bool = False


def length(row: Row, mode: Mode, sessions: Sequence[Session]) -> Length | None:
    """None where no run here says it. `sessions`: earlier runs on this machine, oldest first."""
    if (found := last(row, mode, sessions)) is not None:
        return Length(found)
    quick = last(row, "quick", sessions)
    if mode != "full" or quick is None or (isinstance(row, Comparison) and row.is_heavy):
        return None
    return Length(full_s(row, quick), is_derived=True)


def last(row: Row, mode: Mode, sessions: Sequence[Session]) -> float | None:
    took = (each.took_s[row.name] for each in reversed(sessions) if each.mode == mode and row.name in each.took_s)
    return next(took, None)


def full_s(row: Row, quick_s: float) -> float:
    """Where a quick run took no more than its seconds, rounds end with those of a full one, or before; else the least
    number of rounds is what takes so long."""
    if not isinstance(row, Comparison):
        return quick_s * row.times
    if quick_s <= 2 * QUICK.seconds:
        return AROUND * FULL.seconds + quick_s
    return quick_s * FULL.min_pairs / QUICK.min_pairs
