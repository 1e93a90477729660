"""Which of two heartbeats of a worker is the newer one."""

from __future__ import annotations

from typing import TypeAlias

from esper.leyline import contracts as pb

Sealed: TypeAlias = tuple[int, int]
"""Incarnation of who sealed a message, and its number among those that it sealed."""
UNKNOWN: Sealed = (0, 0)


def is_older(beat: pb.Heartbeat, sealed: Sealed, known: pb.Heartbeat, known_sealed: Sealed) -> bool:
    """One process numbers what it seals, whatever its clock does meanwhile. Of two processes the clock says."""
    if sealed[0] == known_sealed[0] != 0:
        return sealed[1] < known_sealed[1]
    return beat.time_ns < known.time_ns
