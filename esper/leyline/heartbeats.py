"""What a heartbeat says of its worker: whether it is away, and which of two is the newer one."""

from __future__ import annotations

from typing import TypeAlias

from esper.leyline import contracts as pb

Sealed: TypeAlias = tuple[int, int]
"""Incarnation of who sealed a message, and its number among those that it sealed."""
UNKNOWN: Sealed = (0, 0)
PAUSED = int(pb.BusyWith.BUSY_PAUSED)  # looked up at each heartbeat, a member of an enum costs more than the rest
_AT_BOUNDARY = frozenset({int(pb.BusyWith.BUSY_NONE), PAUSED})


def is_away(beat: pb.Heartbeat) -> bool:
    """Whether its trainer says that it leaves the boundary for a while; a paused one stays, and beats on."""
    return beat.busy not in _AT_BOUNDARY


def is_older(beat: pb.Heartbeat, sealed: Sealed, known: pb.Heartbeat, known_sealed: Sealed) -> bool:
    """One process numbers what it seals, whatever its clock does meanwhile. Of two processes the clock says."""
    if sealed[0] == known_sealed[0] != 0:
        return sealed[1] < known_sealed[1]
    return beat.time_ns < known.time_ns
