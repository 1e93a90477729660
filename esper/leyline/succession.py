"""Which of the decisions on record are those of whoever led at their time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from esper.errors import SpentError
from esper.leyline import contracts as pb

Decision: TypeAlias = pb.BarrierProposal | pb.BarrierCommit | pb.BarrierAbort
Said: TypeAlias = Decision | pb.LeaderAnnouncement

MOST, MOST_GENERATION = 2**63, 2**32 - 2**16
"""Of tokens, rounds and steps, and of generations: a leader goes above what a rank says that it has met, up to here."""
LAST, LAST_GENERATION = 2**63 + 2**62, 2**32 - 2**15
"""No decision says more: it would leave the next leader no number above it. Ranks say as much once they have met it."""


class Succession:
    """Who led, in stream order. What a leader says under a lower token than one announced before it is void."""

    def __init__(self) -> None:
        self.token = 0

    def holds(self, said: Said) -> bool:
        """Whether this was said by the leader of its time; takes note of a newer one."""
        if said.lease_token < self.token:
            return False
        self.token = said.lease_token
        return True

    def next_token(self, now_ms: int) -> int:
        """Above all on record, and above those that Redis may have lost, as far as its clock goes on."""
        return above("lease_token", max(self.token, now_ms - 1), LAST)


def above(name: str, number: int, last: int) -> int:
    """The next number. SpentError where there is none that a rank would take."""
    if number >= last:
        raise SpentError(name, number, last)
    return number + 1


def in_force(record: Iterable[Said], succession: Succession) -> Iterator[Decision]:
    """Decisions that count, in stream order: of each round at most one commit or abort, the first."""
    decided = 0
    for said in record:
        if not succession.holds(said) or isinstance(said, pb.LeaderAnnouncement):
            continue
        if not isinstance(said, pb.BarrierProposal):
            if said.round <= decided:
                continue
            decided = said.round
        yield said
