"""The newest decisions, to be said once more where Redis loses them before a rank has read them."""

from __future__ import annotations

from esper.leyline import contracts as pb
from esper.leyline.succession import Decision
from esper.tamiyo.barrier import Barrier
from esper.tamiyo.roster import Roster


class NewestDecisions:
    """The newest commit, and the newest abort behind it: a rank that read neither may wait for either."""

    def __init__(self) -> None:
        self._commit: pb.BarrierCommit | None = None
        self._abort: pb.BarrierAbort | None = None

    def note(self, decision: pb.BarrierCommit | pb.BarrierAbort) -> None:
        if isinstance(decision, pb.BarrierCommit):
            self._commit, self._abort = decision, None
        else:
            self._abort = decision

    def void_commit(self) -> None:
        """Nobody is here any more whom the newest commit binds."""
        self._commit = None

    def again(self, roster: Roster, barrier: Barrier | None) -> list[Decision]:
        """What a rank may have missed, in its order.

        Not a commit to a group of an earlier generation: its ranks were replaced, and those of now have not all met
        the generation by which the rest of them would know.
        """
        commit, generation = self._commit, 0 if barrier is None else barrier.generation
        if commit is not None and commit.roster_generation < generation and not roster.is_of_replicas:
            commit = None
        if commit is not None and roster.has_applied(commit.round, commit.effective_step):
            commit = None
        return [said for said in (commit, self._abort) if said is not None]
