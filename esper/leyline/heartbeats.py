"""What a heartbeat says of its worker: whether it is away, and which of two is the newer one."""

from __future__ import annotations

from typing import NamedTuple

from esper.leyline import contracts as pb
from esper.leyline.checks import FRESH_MS, MS_NS
from esper.leyline.seal import Opened


class Sealed(NamedTuple):
    """Who sealed a message, its number among those that it sealed, and when, by the clock that all seal by."""

    incarnation: int
    sequence: int
    at_ns: int
    is_behind: bool = False
    """Whether that clock was then behind the entry's time: it had been set back."""

    @classmethod
    def of(cls, opened: Opened) -> Sealed:
        header = opened.header
        return cls(header.incarnation, header.sequence, header.issued_at_ns, opened.clock_suspect)


UNKNOWN = Sealed(0, 0, 0)
PAUSED = int(pb.BusyWith.BUSY_PAUSED)  # looked up at each heartbeat, a member of an enum costs more than the rest
_AT_BOUNDARY = frozenset({int(pb.BusyWith.BUSY_NONE), PAUSED})


def is_away(beat: pb.Heartbeat) -> bool:
    """Whether its trainer says that it leaves the boundary for a while; a paused one stays, and beats on."""
    return beat.busy not in _AT_BOUNDARY


def is_older(beat: pb.Heartbeat, sealed: Sealed, known: pb.Heartbeat, known_sealed: Sealed) -> bool:
    """One process numbers what it seals, whatever clocks do meanwhile. Of two the clock says that they sealed by.

    That is the server's; what is read late behind one that was set back would be stale, so one that is a minute ahead
    was sealed before that. Trainers date by their machines', which may be minutes apart where one begins elsewhere.
    """
    if sealed.incarnation == known_sealed.incarnation != 0:
        return sealed.sequence < known_sealed.sequence
    if sealed.at_ns and known_sealed.at_ns:
        ahead_ns = known_sealed.at_ns - sealed.at_ns
        return ahead_ns > 0 and not (sealed.is_behind and ahead_ns > FRESH_MS * MS_NS)
    return beat.time_ns < known.time_ns
