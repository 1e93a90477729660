"""What a heartbeat says of its worker: whether it is away, and which of two is the newer one."""

from __future__ import annotations

from typing import NamedTuple

from esper.leyline import contracts as pb
from esper.leyline.envelope import Header


class Sealed(NamedTuple):
    """Who sealed a message, its number among those that it sealed, and when, by the clock that all seal by."""

    incarnation: int
    sequence: int
    at_ns: int

    @classmethod
    def by(cls, header: Header) -> Sealed:
        return cls(header.incarnation, header.sequence, header.issued_at_ns)


UNKNOWN = Sealed(0, 0, 0)
PAUSED = int(pb.BusyWith.BUSY_PAUSED)  # looked up at each heartbeat, a member of an enum costs more than the rest
_AT_BOUNDARY = frozenset({int(pb.BusyWith.BUSY_NONE), PAUSED})


def is_away(beat: pb.Heartbeat) -> bool:
    """Whether its trainer says that it leaves the boundary for a while; a paused one stays, and beats on."""
    return beat.busy not in _AT_BOUNDARY


def is_older(beat: pb.Heartbeat, sealed: Sealed, known: pb.Heartbeat, known_sealed: Sealed) -> bool:
    """One process numbers what it seals, whatever clocks do meanwhile. Of two the clock says that they sealed by.

    That is the server's. Trainers date by their machines', which may be minutes apart where one begins anew elsewhere.
    """
    if sealed.incarnation == known_sealed.incarnation != 0:
        return sealed.sequence < known_sealed.sequence
    if sealed.at_ns and known_sealed.at_ns:
        return sealed.at_ns < known_sealed.at_ns
    return beat.time_ns < known.time_ns
