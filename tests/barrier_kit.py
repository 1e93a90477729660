"""Coordinator, orders and step boundaries, driven in any order by hypothesis, beside a model that only counts votes.

Messages lie on logs as in Redis and are read one at a time; coordinators die between any two messages, and one that was
replaced goes on talking, as where Redis has forgotten who leads. Ranks of a group are started anew together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from esper.bus.group.delivery import Delivery
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.leyline.seal import Opened
from esper.leyline.succession import Said, Succession, in_force
from esper.runtime.beside.orders import Orders
from esper.tamiyo.coordinator import Coordinator
from esper.tamiyo.outcome import Entry, Outcome
from esper.tolaria.boundary import Boundary
from tests.rounds import germinate, heartbeat, opened, vote

RANKS = (0, 1, 2)


RANK = st.sampled_from(RANKS)


MS = 1_000_000


PROMISE_STEPS = 8


MOST_TURNS = 60


@dataclass
class Rank:
    """One rank: what it has read, where it stands, what it has carried out."""

    number: int
    incarnation: int
    step: int
    orders: Orders
    boundary: Boundary = field(default_factory=Boundary)
    num_decisions: int = 0
    num_commands: int = 0
    applied: list[tuple[int, int]] = field(default_factory=list)  # round, before which step

    def hear(self, said: list[pb.ToTrainer]) -> list[pb.BarrierVote]:
        """Pass on what the runtime says; votes to repeat."""
        votes = []
        for message in said:
            match message.WhichOneof("message"):
                case "proposal":
                    votes += [again] if (again := self.boundary.on_proposal(message.proposal)) else []
                case "commit":
                    self.boundary.on_commit(message.commit)
                case "abort":
                    self.boundary.on_abort(message.abort)
        return votes


class Barriers(RuleBasedStateMachine):
    """Two logs, one stream of votes, one of decisions; who leads, who led, and what is expected of both."""

    @initialize()
    def begin(self) -> None:
        self.now_ns = 1_000 * MS
        self.commands: list[Opened] = []
        self.votes: list[pb.BarrierVote] = []
        self.decisions: list[Said] = []
        self.done: set[Entry] = set()
        self.answers: Counter[str] = Counter()
        self.voted: dict[tuple[int, int], dict[str, int]] = {}  # the model: step of each vote, by round
        self.old: tuple[Coordinator, int] | None = None
        self.token = 0
        self.ranks = [Rank(number, 1, 1, Orders()) for number in RANKS]
        self._lead()
        for number in RANKS:
            self.beat(number, due=False)

    # -- who leads ---------------------------------------------------------------------------------------------------

    def _lead(self) -> None:
        self.leader, succession = Coordinator("coordinator"), Succession()
        self.read = {"commands": 0, "votes": 0}
        outcome = self.leader.resume(in_force(self.decisions, succession))
        self.token = succession.next_token(self.now_ns // MS)
        self.decisions.append(pb.LeaderAnnouncement(version=1, leader="coordinator", lease_token=self.token))
        self._settle(outcome)

    def _settle(self, outcome: Outcome) -> None:
        for decision in outcome.decisions:
            decision.lease_token = self.token
            if isinstance(decision, pb.BarrierCommit):
                self._expected(decision)
            self.decisions.append(decision)
        self.done |= set(outcome.done)
        self.answers.update(receipt.entry_id for receipt in outcome.receipts)

    def _expected(self, commit: pb.BarrierCommit) -> None:
        """The model: all have voted, and the change comes where nobody can have been yet."""
        votes = self.voted[commit.roster_generation, commit.round]
        assert votes.keys() == {f"worker-{number}" for number in RANKS}
        assert commit.effective_step == max(votes.values()) + PROMISE_STEPS

    @rule()
    def the_leader_dies(self) -> None:
        self.old = (self.leader, self.token)
        self.now_ns += 2 * MS
        self._lead()

    @precondition(lambda self: self.old is not None)
    @rule(hears=st.booleans(), later_ms=st.sampled_from((0, 21_000)))
    def one_that_was_replaced_speaks(self, hears: bool, later_ms: int) -> None:
        """Its settlement would be refused; this is as if Redis had forgotten that. Whatever it says is void."""
        assert self.old is not None
        leader, token = self.old
        said = leader.tick(self.now_ns + later_ms * MS).decisions
        for at, given in enumerate(self.votes if hears else ()):
            said += leader.on_vote(given, ("votes", f"{at + 1}-0"), self.now_ns).decisions
        for decision in (*said, *leader.tick(self.now_ns).decisions):
            decision.lease_token = token
            self.decisions.append(decision)

    # -- what it reads -----------------------------------------------------------------------------------------------

    @rule(kind=st.sampled_from(("commands", "votes")))
    def the_leader_reads(self, kind: str) -> None:
        entries: list[Any] = self.commands if kind == "commands" else self.votes
        while self.read[kind] < len(entries):
            at = self.read[kind]
            self.read[kind] += 1
            if (kind, f"{at + 1}-0") not in self.done:
                self._settle(self._answer(kind, at))
                return

    def _answer(self, kind: str, at: int) -> Outcome:
        if kind == "votes":
            return self.leader.on_vote(self.votes[at], (kind, f"{at + 1}-0"), self.now_ns)
        return self.leader.on_command(kind, self.commands[at], self.now_ns)

    @rule(later_ms=st.sampled_from((0, 1, 400)))
    def time_goes_by(self, later_ms: int) -> None:
        self.now_ns += later_ms * MS
        self._settle(self.leader.tick(self.now_ns))

    @rule(number=RANK, due=st.booleans())
    def beat(self, number: int, due: bool) -> None:
        rank = self.ranks[number]
        said = heartbeat(
            number,
            rank.step,
            world_size=len(RANKS),
            due=due,
            incarnation=rank.incarnation,
            applied=rank.boundary.round_applied,
        )
        self._settle(self.leader.on_heartbeat(said, self.now_ns))

    @rule()
    def publish(self) -> None:
        at = len(self.commands) + 1
        message = germinate(f"s{at}", site="hidden" if at % 2 else "head")
        self.commands.append(opened(message, f"{at}-0")._replace(sealed=b"%d" % at))

    # -- ranks -------------------------------------------------------------------------------------------------------

    @rule(number=RANK, what=st.sampled_from(("a command", "a decision", "all")))
    def a_rank_reads(self, number: int, what: str) -> None:
        match what:
            case "a command":
                self._read_a_command(number)
            case "a decision":
                self._read_a_decision(number)
            case _:
                self._read_all(number)

    def _read_a_command(self, number: int) -> None:
        rank = self.ranks[number]
        if rank.num_commands < len(self.commands):
            command = self.commands[rank.num_commands]
            rank.num_commands += 1
            self._say(rank, rank.orders.on_command("commands", command, delivery(command.entry_id))[0])

    def _read_all(self, number: int) -> None:
        while self.ranks[number].num_commands < len(self.commands):
            self._read_a_command(number)
        while self.ranks[number].num_decisions < len(self.decisions):
            self._read_a_decision(number)

    def _read_a_decision(self, number: int) -> None:
        rank = self.ranks[number]
        if rank.num_decisions >= len(self.decisions):
            return
        said = self.decisions[rank.num_decisions]
        rank.num_decisions += 1
        taken = delivery(f"{rank.num_decisions}-0")
        match said:
            case pb.LeaderAnnouncement():
                rank.orders.on_announcement(said, taken)
            case _ if rank.orders.is_past(said, taken):
                return
            case pb.BarrierProposal():
                self._say(rank, rank.orders.on_proposal(said, taken)[0])
            case pb.BarrierCommit():
                self._say(rank, rank.orders.on_commit(said, taken)[0])
            case pb.BarrierAbort():
                self._say(rank, rank.orders.on_abort(said, taken)[0])

    def _say(self, rank: Rank, said: list[pb.ToTrainer]) -> None:
        self.votes += rank.hear(said)

    @rule(number=RANK, count=st.sampled_from((1, 4, 12)))
    def a_rank_trains(self, number: int, count: int) -> None:
        for _ in range(count):
            self._step(self.ranks[number])

    def _step(self, rank: Rank) -> None:
        while (order := rank.boundary.due(rank.step)) is not None:
            rank.boundary.applied(order, [])
            rank.applied.append((order.commit.round, rank.step))
        if (asked := rank.boundary.vote_asked()) is not None:
            given = vote(rank.number, rank.step, number=asked.round, generation=asked.roster_generation)
            rank.boundary.voted(given)
            self.voted.setdefault((asked.roster_generation, asked.round), {})[given.worker] = rank.step
            self.votes.append(given)
        rank.step += not rank.boundary.must_wait(rank.step)

    @rule()
    def the_group_is_started_anew(self) -> None:
        """From a common checkpoint: at one step, bound by nothing that was decided before."""
        step, past = max(rank.step for rank in self.ranks), entry_order(f"{len(self.decisions)}-0")
        incarnation = self.ranks[0].incarnation + 1
        self.ranks = [Rank(number, incarnation, step, Orders(past=past)) for number in RANKS]
        for number in RANKS:
            self.beat(number, due=False)

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def ranks_carry_out_the_same_rounds_at_the_same_steps(self) -> None:
        if not hasattr(self, "ranks"):
            return
        longest = max((rank.applied for rank in self.ranks), key=len)
        assert all(rank.applied == longest[: len(rank.applied)] for rank in self.ranks)

    @invariant()
    def no_command_is_answered_twice(self) -> None:
        assert not hasattr(self, "answers") or all(count == 1 for count in self.answers.values())

    def teardown(self) -> None:
        """Left alone, all goes on until every command is answered and no rank waits."""
        if not hasattr(self, "ranks"):
            return
        self.all_goes_well_for_a_while(MOST_TURNS)
        assert self.answers.keys() == {command.entry_id for command in self.commands}
        assert not any(rank.boundary.must_wait(rank.step) for rank in self.ranks)
        self.ranks_carry_out_the_same_rounds_at_the_same_steps()
        self.no_command_is_answered_twice()

    @rule(turns=st.sampled_from((1, 2, 12)))
    def all_goes_well_for_a_while(self, turns: int) -> None:
        """Everybody reads all that there is, and trains for a step; so many times."""
        for _ in range(turns):
            for number in RANKS:
                self.beat(number, due=False)
                self._read_all(number)
                self._step(self.ranks[number])
            self._the_leader_reads_all()

    @rule()
    def a_round_begins(self) -> None:
        """Ranks have read of it; none has come to the boundary at which it votes."""
        for number in RANKS:
            self.beat(number, due=True)
        self.time_goes_by(0)
        for number in RANKS:
            self._read_all(number)

    def _the_leader_reads_all(self) -> None:
        for _ in (*self.votes[self.read["votes"] :], *self.commands[self.read["commands"] :]):
            self.the_leader_reads("votes")
            self.the_leader_reads("commands")
        self.time_goes_by(400)


def delivery(at: str) -> Delivery:
    return Delivery("stream", "worker", at, b"", 1, "worker")
