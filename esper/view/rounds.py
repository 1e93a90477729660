"""The barrier rounds of a run, and how long they took."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from esper.leyline import contracts as pb
from esper.leyline.succession import Succession

Decision = pb.BarrierCommit | pb.BarrierAbort
NEWEST = 512


@dataclass
class Rounds:
    """The first decision of each round counts, and what a leader says after the next one was announced does not."""

    committed: int = 0
    aborted: int = 0
    deviations: int = 0  # workers whose parameters or gradients differed, once a round
    newest: deque[Decision] = field(default_factory=lambda: deque(maxlen=NEWEST))
    last_round: int = 0
    _succession: Succession = field(default_factory=Succession)

    def note_leader(self, announcement: pb.LeaderAnnouncement) -> None:
        """Who decides from here on, in the order of the stream."""
        self._succession.holds(announcement)

    def note(self, decision: Decision) -> bool:
        """Whether it counts, in the order of the stream."""
        if not self._succession.holds(decision) or decision.round <= self.last_round:
            return False
        self.last_round = decision.round
        self.newest.append(decision)
        if isinstance(decision, pb.BarrierCommit):
            self.committed += 1
            self.deviations += len({*decision.deviating, *decision.deviating_gradients})
        else:
            self.aborted += 1
        return True

    @property
    def latencies_ms(self) -> list[float]:
        """From proposal to commit, of the newest rounds, oldest first."""
        return [decision.latency_ms for decision in self.newest if isinstance(decision, pb.BarrierCommit)]

    def latency_ms(self, percent: int) -> float | None:
        """A percentile of the newest rounds; None: none was committed."""
        return percentile(sorted(self.latencies_ms), percent)


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Nearest rank: the smallest value that at least this share of them do not exceed."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
