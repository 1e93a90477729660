"""What a runtime makes of the logs that it follows: what its trainer is to hear, and what is settled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from google.protobuf.message import Message

from esper.bus import names
from esper.bus.group.delivery import Delivery
from esper.bus.group.settlement import Settlement
from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened
from esper.runtime.beside.orders import Decision, Orders, Step
from esper.runtime.serving.clock_skew import DatedOpener
from esper.runtime.serving.refusals import Refusals


@dataclass
class Following:
    """One runtime's view of what it reads, and of what its trainer answers. Knows neither Redis nor the link.

    Killed at any moment, its successor reads its pending entries again and the trainer answers repeats from memory.
    Raises TrainingError where this rank would judge otherwise than a commit says, EvictedError where it is to end.
    """

    run_id: str
    name: str
    openers: Mapping[str, DatedOpener]  # of "commands", "optimizer" and "decisions"
    seal: Callable[[Message], bytes]
    now_ms: Callable[[], int]
    orders: Orders = field(default_factory=Orders)
    refusals: Refusals = field(default_factory=Refusals)
    inherits: bool = False
    """Whether this is a replica that resumes: what is decided on the vote of its last trainer is its to carry out."""
    _again: dict[int, pb.RoundApplied | None] = field(default_factory=dict)
    _answered: set[int] = field(default_factory=set)  # of these

    def begin(self, rounds: Iterable[int]) -> None:
        """The trainer carries these out again: they were decided before it began."""
        self._again, self._answered = dict.fromkeys(rounds), set()

    def read(self, name: str, delivery: Delivery, settlement: Settlement) -> list[pb.ToTrainer]:
        """Open one entry; what the trainer needs to hear. Note what is settled by that."""
        try:
            opened = self._opened(name, delivery)
        except RefusedError as error:
            settlement.ack(delivery)  # the coordinator dead-letters it, once for all
            return self._told(self._refuse(name, delivery, error), settlement)
        if name == "decisions":
            messages, settled = self._decide(opened, delivery, settlement)
        else:
            messages, settled = self.orders.on_command(name, opened, delivery)
            messages = [*_foresight(opened.message), *messages]
        return self._told((messages, settled), settlement)

    def look_up(self, ref: pb.CommittedCommand, sealed: bytes | None, settlement: Settlement) -> list[pb.ToTrainer]:
        """The same of an entry that a commit waits for, as its log has it; None: it has it no more.

        It may never be handed over: an earlier runtime has refused and acknowledged it, or Redis has lost it.
        """
        if sealed is None:
            return self._told(self.orders.on_missing(ref), settlement)
        try:
            opened = self.openers[ref.stream].open(sealed, ref.entry_id, self.now_ms())
        except RefusedError as error:
            delivery = Delivery(names.key(self.run_id, ref.stream), self.name, ref.entry_id, sealed, 1, self.name)
            return self._told(self._refuse(ref.stream, delivery, error), settlement)
        return self._told(self.orders.on_found(ref.stream, opened), settlement)

    def applied(self, applied: pb.RoundApplied, settlement: Settlement) -> bool:
        """Note receipts and acks of one round; whether there are any: of a repeat there are none."""
        was_asked = self.orders.was_asked(applied.round)
        settled = self.orders.on_applied(applied)
        if applied.round in self._again:
            self._again[applied.round] = applied
            self._answered |= {applied.round} if settled else set()
        for delivery in settled:
            settlement.ack(delivery)
        if settled and was_asked:  # nobody counts others
            self._answer(applied.receipts, settlement)
        return bool(settled)

    def _opened(self, name: str, delivery: Delivery) -> Opened:
        """Handed over before, it may have been told and voted on, and its answer is owed."""
        opener = self.openers[name]
        openly = opener.open if delivery.attempts == 1 else opener.open_again
        return openly(delivery.body, delivery.entry_id, self.now_ms())

    def _decide(self, opened: Opened, delivery: Delivery, settlement: Settlement) -> Step:
        decision = opened.message
        if isinstance(decision, Decision) and self.orders.is_past(decision, delivery):
            if decision.round in self._again:
                return [], self._held_over(decision, delivery, settlement)
            if isinstance(decision, pb.BarrierCommit) and self.orders.is_unanswered(decision, delivery):
                if self.inherits and self.orders.inherit(decision, delivery):
                    return self.orders.on_commit(decision, delivery)
                self._disown(decision, settlement)
            return [], self.orders.pass_over(decision, delivery)
        match decision:
            case pb.BarrierProposal():
                return self.orders.on_proposal(decision, delivery)
            case pb.BarrierCommit():
                return self.orders.on_commit(decision, delivery)
            case pb.BarrierAbort():
                return self.orders.on_abort(decision, delivery)
            case pb.LeaderAnnouncement():
                return self.orders.on_announcement(decision, delivery)
            case _:
                return [], [delivery]

    def _held_over(self, decision: Decision, delivery: Delivery, settlement: Settlement) -> list[Delivery]:
        """Of a commit no receipts were written yet: the trainer carries it out again, and with them it is settled."""
        applied = self._again[decision.round]
        if isinstance(decision, pb.BarrierCommit) and decision.round not in self._answered:
            if applied is None:
                self.orders.hold(decision.round, delivery)
                return []
            self._answered.add(decision.round)
            self._answer(applied.receipts, settlement)
        return [delivery]

    def _disown(self, commit: pb.BarrierCommit, settlement: Settlement) -> None:
        """Answer for an earlier trainer of this name, which voted and ended before its receipts were written."""
        detail = f"the trainer that voted in round {commit.round} has ended; whether it carried this out is not known"
        receipts = [
            pb.CommandReceipt(
                version=1,
                command_id=ref.command_id,
                status=pb.ReceiptStatus.RECEIPT_FAILED,
                reason=pb.ReasonCode.REASON_ROSTER_CHANGED,
                worker=self.name,
                step=commit.effective_step,
                round=commit.round,
                detail=detail,
                entry_id=ref.entry_id,
                time_ns=self.now_ms() * 1_000_000,
            )
            for ref in commit.commands
        ]
        self._answer(receipts, settlement)

    def _refuse(self, name: str, delivery: Delivery, error: RefusedError) -> Step:
        self.refusals.note(delivery.stream, delivery.entry_id, error)
        return ([], []) if name == "decisions" else self.orders.on_refused(name, delivery, error)

    def _told(self, step: Step, settlement: Settlement) -> list[pb.ToTrainer]:
        messages, settled = step
        for done in settled:
            settlement.ack(done)
        return messages

    def _answer(self, receipts: Iterable[pb.CommandReceipt], settlement: Settlement) -> None:
        for receipt in receipts:
            settlement.write(names.key(self.run_id, "receipts"), self.seal(receipt))


def _foresight(message: Message) -> list[pb.ToTrainer]:
    """A germination, whose kernel takes time to make: in a fast loop its commit comes with the step of its effect."""
    if not isinstance(message, pb.AdaptationCommand):
        return []
    command = message.seed_command
    return [pb.ToTrainer(foreseen=command)] if command.operation == pb.SeedOperation.SEED_OP_GERMINATE else []
