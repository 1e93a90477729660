"""Workers that are heard from their boundaries and vote on nothing, round after round."""

from __future__ import annotations

from collections import Counter

from esper.tamiyo.barrier import Barrier
from esper.tamiyo.roster import Roster

MUTE_ROUNDS = 3
ARRIVED_NS = 1_000_000_000
"""After so long a proposal has come to each trainer, which votes at its next boundary."""


class NonVoters:
    """Counts, by worker, rounds that ended without its vote though it came to its boundary and others had voted.

    Not where it was away or inside a step: a compilation takes as long as it takes, and who comes back from it votes.
    """

    def __init__(self, most: int = MUTE_ROUNDS) -> None:
        self.most = most
        self._rounds: Counter[str] = Counter()

    def voted(self, worker: str) -> None:
        """It does vote: what it has left out before counts no more."""
        self._rounds.pop(worker, None)

    def over(self, barrier: Barrier, roster: Roster) -> list[str]:
        """Note that the open round ends undecided; who is to be given up for that."""
        if not barrier.num_counted:  # as where Redis fell back: it is not one of them
            return []
        self._rounds.update(roster.at_boundary(barrier.missing, barrier.proposed_ns + ARRIVED_NS))
        return [worker for worker in barrier.missing if self._rounds[worker] >= self.most]

    def begin_anew(self) -> None:
        """Others may bear these names from now on."""
        self._rounds.clear()
