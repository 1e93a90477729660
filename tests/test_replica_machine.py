"""Replicas that come, hang, are evicted and come back in any order, by hypothesis: the machine of the barrier again."""

from __future__ import annotations

from hypothesis import settings, strategies as st
from hypothesis.stateful import invariant, precondition, rule

from esper.errors import EvictedError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.leyline.succession import Succession, in_force
from esper.runtime.beside.orders import Orders
from tests.barrier_kit import MS, PROMISE_STEPS, RANK, RANKS, Barriers, Rank
from tests.rounds import heartbeat

HUNG_MS = 5_000


class Replicas(Barriers):
    """As ranks, but each by itself: one that hangs is evicted alone, and one that begins anew joins the others.

    Which rounds a replica has voted in follows from the proposals; the model of an effective step is the furthest vote.
    """

    def _lead(self) -> None:
        if not hasattr(self, "away"):
            self.away: set[int] = set()
            self.floor = 0
        super()._lead()

    def _expected(self, commit: pb.BarrierCommit) -> None:
        proposals = [said for said in self.decisions if isinstance(said, pb.BarrierProposal)]
        rosters = {said.round: said.roster for said in proposals if said.lease_token == self.token}
        votes = self.voted[commit.roster_generation, commit.round]
        assert votes.keys() == set(rosters[commit.round])
        furthest = max(votes.values()) + PROMISE_STEPS
        begins_anew = len(votes) == 1  # and nobody else is there who may wait for a later step
        assert commit.effective_step == max(furthest, self.floor) or (begins_anew and commit.effective_step == furthest)
        assert not commit.digests_compared
        self.floor = commit.effective_step

    @rule(number=RANK, due=st.booleans())
    def beat(self, number: int, due: bool) -> None:
        if number not in self.away:
            self._beat(number, due=due)

    def _beat(self, number: int, *, due: bool) -> None:
        rank = self.ranks[number]
        applied, incarnation = rank.boundary.round_applied, 100 * (number + 1) + rank.incarnation
        said = heartbeat(number, rank.step, world_size=1, due=due, incarnation=incarnation, applied=applied)
        said.rank = 0
        rank.orders.worker, rank.orders.incarnation = said.worker, said.incarnation
        self._settle(self.leader.on_heartbeat(said, self.now_ns))

    @rule()
    def the_group_is_started_anew(self) -> None:
        """There is none."""

    @rule(number=RANK)
    def one_is_started_anew(self, number: int) -> None:
        """From a checkpoint at its step: it knows what was decided by then."""
        old, past = self.ranks[number], entry_order(f"{len(self.decisions)}-0")
        anew = Rank(number, old.incarnation + 1, old.step, Orders(past=past))
        self.ranks[number] = anew
        self.away.discard(number)
        self._beat(number, due=False)

    @precondition(lambda self: len(self.away) < len(RANKS) - 1)
    @rule(number=RANK)
    def one_hangs(self, number: int) -> None:
        """For as long as is waited for it, while the others go on."""
        self.away.add(number)
        for _ in range(2):
            self.now_ns += HUNG_MS // 2 * MS
            for other in set(RANKS) - self.away:
                self._beat(other, due=False)
            self._settle(self.leader.tick(self.now_ns))

    def _read_a_decision(self, number: int) -> None:
        if number in self.away:
            return
        try:
            super()._read_a_decision(number)
        except EvictedError:
            self.one_is_started_anew(number)

    def _read_all(self, number: int) -> None:
        if number not in self.away:
            super()._read_all(number)

    def _step(self, rank: Rank) -> None:
        if rank.number not in self.away:
            super()._step(rank)

    @rule(number=RANK)
    def one_wakes(self, number: int) -> None:
        """It may have been evicted, which it is yet to read."""
        self.away.discard(number)

    @invariant()
    def ranks_carry_out_the_same_rounds_at_the_same_steps(self) -> None:
        """Each at its effective step, and none twice; one that had not joined when it was decided may be late."""
        if not hasattr(self, "ranks"):
            return
        steps = {commit.round: commit.effective_step for _, commit in self._commits()}
        for rank in self.ranks:
            numbers = [number for number, _ in rank.applied]
            assert numbers == sorted(set(numbers))
            assert all(step >= steps[number] for number, step in rank.applied)

    def teardown(self) -> None:
        if hasattr(self, "ranks"):
            for number in list(self.away):
                self.one_is_started_anew(number)
        super().teardown()
        for rank in self.ranks if hasattr(self, "ranks") else ():
            carried_out = {number for number, _ in rank.applied}
            missed = [
                commit.round
                for at, commit in self._commits()
                if (at, 0) > rank.orders.past and commit.effective_step < rank.step and commit.round not in carried_out
            ]
            assert not missed, (rank.number, missed)

    def _commits(self) -> list[tuple[int, pb.BarrierCommit]]:
        """Those that count, with their place in the log."""
        at = {id(said): number + 1 for number, said in enumerate(self.decisions)}
        counting = in_force(self.decisions, Succession())
        return [(at[id(said)], said) for said in counting if isinstance(said, pb.BarrierCommit)]


Replicas.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestReplicas = Replicas.TestCase
