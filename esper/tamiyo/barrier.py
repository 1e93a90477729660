"""One round of agreement at a time: who was asked, who voted, and the step at which the decision takes effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from esper.leyline import contracts as pb
from esper.leyline.succession import LAST, above
from esper.leyline.validate.bounds import PROMISE_STEPS


class Released(NamedTuple):
    """A round in which every worker of the roster has voted. Votes are in the order of the roster."""

    round: int
    generation: int
    votes: tuple[pb.BarrierVote, ...]
    effective_step: int
    epoch: int
    digests_compared: bool
    deviating: tuple[str, ...]
    deviating_gradients: tuple[str, ...]
    latency_ms: float


class Barrier:
    """Counts votes, one round at a time. Knows nothing of clocks or of Redis.

    A vote for another round, for another roster or by a stranger is never folded in; nor is a second vote of one
    worker, since the first one already binds it.
    """

    def __init__(self, roster: Sequence[str], generation: int, round: int = 0) -> None:
        self.roster = tuple(roster)
        self.generation = generation
        self.round = round
        self.is_open = False
        self.proposed_ns = 0
        self._votes: dict[str, pb.BarrierVote] = {}
        self._awaited = dict.fromkeys(self.roster)
        self._is_foreign = False

    @property
    def missing(self) -> list[str]:
        """Workers of the open round whose vote is awaited, by rank."""
        return list(self._awaited) if self.is_open else []

    @property
    def num_counted(self) -> int:
        """Votes of the newest round that were counted."""
        return len(self._votes)

    @property
    def held_before(self) -> dict[str, int]:
        """Who has voted in the open round, and the step that it may not begin before the decision."""
        return {worker: vote.step + PROMISE_STEPS for worker, vote in self._votes.items()} if self.is_open else {}

    def propose(self, now_ns: int) -> pb.BarrierProposal:
        """Open the next round. May be called only once the one before is decided."""
        if self.is_open:
            raise ValueError(f"round {self.round} is not decided yet")
        self.round = above("round", self.round, LAST)
        self.is_open = True
        self.proposed_ns = now_ns
        self._votes, self._awaited = {}, dict.fromkeys(self.roster)
        return pb.BarrierProposal(
            version=1, round=self.round, roster_generation=self.generation, roster=self.roster, time_ns=now_ns
        )

    def reopen(self, proposal: pb.BarrierProposal) -> None:
        """Take over a proposal that was published before this process began; its votes are not known here."""
        self.round, self.is_open, self.proposed_ns = proposal.round, True, proposal.time_ns
        self._is_foreign = True

    def arrive(self, vote: pb.BarrierVote, now_ns: int) -> Released | None:
        """Note a vote; return what the round comes to if it was the last one awaited."""
        if not self._counts(vote):
            return None
        self._votes[vote.worker] = vote
        del self._awaited[vote.worker]
        return None if self._awaited else self._release(now_ns)

    def abort(self, reason: pb.ReasonCode, detail: str, evicted: Sequence[pb.EvictedProcess] = ()) -> pb.BarrierAbort:
        """Close the open round without effect, naming who did not vote, and whose processes end."""
        abort = pb.BarrierAbort(
            version=1,
            round=self.round,
            roster_generation=self.generation,
            reason=reason,
            detail=detail,
            missing=[] if self._is_foreign else self.missing,
            evicted=evicted,
        )
        self.is_open = self._is_foreign = False
        return abort

    def _counts(self, vote: pb.BarrierVote) -> bool:
        is_of_round = (vote.round, vote.roster_generation) == (self.round, self.generation)
        return self.is_open and is_of_round and vote.worker in self._awaited

    def _release(self, now_ns: int) -> Released:
        self.is_open = False
        votes = tuple(self._votes[worker] for worker in self.roster)
        released = Released(
            round=self.round,
            generation=self.generation,
            votes=votes,
            effective_step=effective_step(votes),
            epoch=max(vote.epoch for vote in votes),
            digests_compared=True,
            deviating=unlike_most({vote.worker: vote.parameter_digest for vote in votes}),
            deviating_gradients=unlike_most(gradients_of(votes)),
            latency_ms=max(now_ns - self.proposed_ns, 0) / 1e6,
        )
        return released if len({vote.step for vote in votes}) == 1 else as_settled(released)


def effective_step(votes: Sequence[pb.BarrierVote]) -> int:
    """The first step that no voter can have begun; the step all are held before, where one pause holds them all.

    That too where the others are replicas far behind it, which joined without having met the pause.
    """
    held = {vote.held_step for vote in votes if vote.held and vote.held_step}
    earliest = max((vote.step + PROMISE_STEPS for vote in votes if not (vote.held and vote.held_step)), default=0)
    if len(held) == 1 and earliest <= max(held):
        return held.pop()
    return max(vote.step for vote in votes) + PROMISE_STEPS


def of_replicas(released: Released, least_step: int) -> Released:
    """The same, of workers in no process group: they share no parameters, and so no digests are compared.

    `least_step`: the effective step before, which no later one may lie below: who is slow still waits for it when the
    fastest has left.
    """
    step = max(released.effective_step, least_step)
    return released._replace(effective_step=step, digests_compared=False, deviating=(), deviating_gradients=())


def as_settled(released: Released) -> Released:
    """The same, judged by what ranks held where the same round before took effect: they have voted at several steps.

    A round is not compared if that one was, or if some had not come as far: then the next one is.
    """
    votes = released.votes
    rounds = {vote.settled_round for vote in votes}
    told = {vote.worker: vote.settled_digest for vote in votes} if len(rounds) == 1 and 0 not in rounds else {}
    return released._replace(digests_compared=bool(told), deviating=unlike_most(told))


def gradients_of(votes: Sequence[pb.BarrierVote]) -> dict[str, bytes]:
    """Digests of gradients, by worker; none unless all are of one step."""
    steps = {vote.gradient_step for vote in votes}
    return {vote.worker: vote.gradient_digest for vote in votes} if len(steps) == 1 and 0 not in steps else {}


def unlike_most(digests: Mapping[str, bytes]) -> tuple[str, ...]:
    """Workers whose digest is not that of most. Without a majority all are named: detected, not attributed."""
    counts = Counter(digests.values())
    if len(counts) <= 1:
        return ()
    [(digest, most)] = counts.most_common(1)
    if 2 * most <= len(digests):
        return tuple(digests)
    return tuple(worker for worker, each in digests.items() if each != digest)


def to_quarantine(released: Released, from_epoch: int) -> tuple[str, ...]:
    """Workers that a majority names, from this epoch on; before it, evidence is only told."""
    if released.epoch < from_epoch:
        return ()
    named = {*released.deviating, *released.deviating_gradients}
    roster = [vote.worker for vote in released.votes]
    return tuple(worker for worker in roster if worker in named) if 2 * len(named) < len(roster) else ()
