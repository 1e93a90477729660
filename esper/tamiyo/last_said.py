"""The newest decisions, to be said once more where Redis loses them before a rank has read them."""

from __future__ import annotations

from collections import deque

from esper.leyline import contracts as pb
from esper.leyline.succession import Decision
from esper.tamiyo.roster import Roster

MOST_EVICTIONS = 64


class LastSaid:
    """The newest commit, the newest abort behind it, and evictions: who read neither may wait, or go on unheard."""

    def __init__(self) -> None:
        self._commit: pb.BarrierCommit | None = None
        self._abort: pb.BarrierAbort | None = None
        self._evictions: deque[pb.BarrierAbort] = deque(maxlen=MOST_EVICTIONS)

    def note(self, decision: pb.BarrierCommit | pb.BarrierAbort) -> None:
        if isinstance(decision, pb.BarrierCommit):
            self._commit, self._abort = decision, None
            return
        self._abort = decision
        if decision.evicted:
            self._evictions.append(decision)

    def void_commit(self) -> None:
        """Nobody is here any more whom the newest commit binds."""
        self._commit = None

    def again(self, roster: Roster) -> list[Decision]:
        """What a worker may have missed, in its order."""
        commit = self._commit
        if commit is not None and roster.has_applied(commit.round, commit.effective_step):
            commit = None
        evictions = [each for each in self._evictions if each is not self._abort and _may_have_missed(each, roster)]
        said: list[Decision] = [each for each in (*evictions, commit, self._abort) if each is not None]
        return sorted(said, key=lambda each: each.round)


def _may_have_missed(abort: pb.BarrierAbort, roster: Roster) -> bool:
    """Whether a process that it ends may live on: it was named, and no other has taken its place yet."""
    heard = roster.incarnations_of([process.worker for process in abort.evicted])
    return any(each.incarnation and now == 0 for each, now in zip(abort.evicted, heard, strict=True))
