"""Which decision takes effect before which step, and when a step must wait."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from esper.errors import TrainingError
from esper.leyline import contracts as pb
from esper.leyline.validate.bounds import PROMISE_STEPS

_REMEMBERED_ROUNDS = 64
_REMEMBERED_COMMANDS = 4_096


@dataclass(frozen=True)
class Hold:
    """What a vote says about pauses: `step` is the one that this rank stays before, 0 when nothing holds it."""

    step: int

    @property
    def held(self) -> bool:
        return self.step > 0


@dataclass
class Boundary:
    """The rule of one rank's step boundary: votes asked for, promises given, orders to carry out.

    Knows nothing of sockets, clocks or tensors. Messages come in stream order and may be repeated; a repeat of a
    round that has taken effect is answered from memory, never carried out again. Nor is a command, by its sealed
    bytes, that another round names once more: Redis fell back, and a new coordinator knows nothing of the first one.
    """

    is_in_group: bool = False
    """Whether others must carry out the same: a decision on this rank's vote that is lost ends it."""
    promised_from: int | None = None
    paused_before: int = 0
    _asked: pb.BarrierProposal | None = None
    _vote: pb.BarrierVote | None = None
    unforeseen: list[pb.CommitOrder] = field(default_factory=list)  # what the next call of foreseen() is about
    stirred: Callable[[], object] = lambda: None  # it was idle, and may be so no more
    _orders: deque[pb.CommitOrder] = field(default_factory=deque)
    _recalled: deque[pb.CommitOrder] = field(default_factory=deque)
    _again: dict[int, pb.RoundApplied | None] = field(default_factory=dict)
    _decided: int = 0
    _applied: OrderedDict[int, pb.RoundApplied] = field(default_factory=OrderedDict)
    _receipts: OrderedDict[bytes, pb.CommandReceipt] = field(default_factory=OrderedDict)

    @property
    def round_applied(self) -> int:
        """Newest round whose decision has taken effect here."""
        return next(reversed(self._applied), 0)

    @property
    def round_met(self) -> int:
        """Newest round that this rank was asked about or told of."""
        return max(self._decided, *(each.round for each in (self._asked, self._vote) if each is not None), 0)

    @property
    def queued(self) -> int:
        """Orders that wait for their step."""
        return len(self._orders)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to carry out, to vote on or to wait for: most steps of a run."""
        return not (
            self._orders or self._recalled or self._asked or self.paused_before or self.promised_from is not None
        )

    @property
    def next_due(self) -> float:
        """Before this step there is something to do or to wait for, unless more is heard until then; infinite: never.

        What was decided is carried out then and not earlier, and a promise binds only from then on.
        """
        if self._asked or self.paused_before:
            return 0
        steps = [order.commit.effective_step for order in islice(self._recalled, 1)]
        steps += [self._first_step()] if self._orders else []
        steps += [self.promised_from + PROMISE_STEPS] if self.promised_from is not None else []
        return min(steps, default=math.inf)

    @property
    def recalling(self) -> bool:
        """Whether orders decided before this process began are yet to be carried out again."""
        return bool(self._recalled)

    @property
    def again(self) -> Mapping[int, pb.RoundApplied | None]:
        """Every round that was recalled, with its answer once it was carried out again."""
        return self._again

    def recall(self, orders: Iterable[pb.CommitOrder]) -> None:
        """Carry these out again, each before its step, whatever is decided meanwhile. Before the first step."""
        self._recalled = deque(sorted([*self._recalled, *orders], key=_by_step))
        self._again |= dict.fromkeys(order.commit.round for order in self._recalled)
        self.stirred()

    def on_proposal(self, proposal: pb.BarrierProposal) -> pb.BarrierVote | None:
        """Note that a vote is asked for; return the vote already given when this is a repeat.

        TrainingError where the decision on that vote is lost: no round is proposed before the last one is decided.
        """
        if self._vote is not None and proposal.round == self._vote.round:
            return self._vote
        if proposal.round > self._decided:
            if self.is_in_group and self._vote is not None and self.promised_from is not None:
                raise TrainingError(
                    f"round {proposal.round} is proposed, and what was decided in round {self._vote.round}, on which "
                    "this rank has voted, is on no log: others of its group may have carried it out"
                )
            self._asked = proposal
            self.stirred()
        return None

    def on_commit(self, order: pb.CommitOrder) -> pb.RoundApplied | None:
        """Queue an order; return the receipts already given when this is a repeat."""
        number = order.commit.round
        if number in self._applied:
            return self._applied[number]
        if number > self._decided:
            self._orders.append(order)
            self.unforeseen.append(order)
            self._settle(number)
            self._go_on_if_resumed_later()
            self.stirred()
        return None

    def on_abort(self, abort: pb.BarrierAbort) -> None:
        """Forget the round: its promise no longer binds."""
        if abort.round > self._decided:
            self._settle(abort.round)

    def vote_asked(self) -> pb.BarrierProposal | None:
        return self._asked

    def voted(self, vote: pb.BarrierVote) -> None:
        """Note the vote given, which promises not to begin `vote.step + 8` before the decision."""
        self._asked, self._vote = None, vote
        self.promised_from = vote.step

    def hold(self) -> Hold:
        """The pause that binds this rank, in force or committed for a step to come."""
        step = self.paused_before
        for order in (*self._recalled, *self._orders):
            change = pause_change(self._not_yet_carried_out(order))
            if change is not None:
                step = order.commit.effective_step if change else 0
        return Hold(step)

    def must_wait(self, step: int) -> bool:
        """True where a promise forbids to begin `step` before the decision is read."""
        return self.promised_from is not None and step >= self.promised_from + PROMISE_STEPS

    def overdue(self, step: int, patience_s: float) -> str:
        """What is to be said where no decision came in so many seconds."""
        return (
            f"no decision within {patience_s:g} s on the round voted for at step {self.promised_from}; "
            f"step {step} was promised not to begin before it"
        )

    def due(self, step: int) -> pb.CommitOrder | None:
        """The next order that takes effect before `step`. Raises TrainingError where its step has gone by.

        Not for one that this worker was not asked about: it had promised nothing, and carries it out now. If that was
        a pause, it stands behind the step at which the others wait, and resumes with them.
        """
        if self._recalled and self._recalled[0].commit.effective_step <= step:
            return self._not_yet_carried_out(self._recalled.popleft())
        if not self._orders or self._first_step() > step:
            return None
        order = self._orders.popleft()
        may_be_late = order.unasked or order.commit.effective_step == self.paused_before
        if order.commit.effective_step < step and not may_be_late:
            raise TrainingError(
                f"round {order.commit.round} takes effect before step {order.commit.effective_step}, "
                f"but this rank stands before step {step}"
            )
        return self._not_yet_carried_out(order)

    def _first_step(self) -> int:
        """Before which the next order is to be carried out.

        One that this worker was not asked about is so at the latest with what it was asked about later: whoever else
        was has left, and the step of that is counted from this worker's own.
        """
        head, steps = self._orders[0], [order.commit.effective_step for order in self._orders]
        return min(steps) if head.unasked else steps[0]

    def foreseen(self, step: int) -> list[pb.CommitOrder]:
        """Orders that came since the last call and take effect after `step`: there is time to prepare for them."""
        came, self.unforeseen = self.unforeseen, []
        return [order for order in came if order.commit.effective_step > step]

    def applied(self, order: pb.CommitOrder, receipts: list[pb.CommandReceipt]) -> pb.RoundApplied:
        """Remember what was done, so that a repeat of the round is answered and not done again."""
        change = pause_change(order)
        if change is not None:
            self.paused_before = order.commit.effective_step if change else 0
            self._go_on_if_resumed_later()
        known = [ref.envelope_digest for ref in order.commit.commands if ref.envelope_digest in self._receipts]
        earlier = [self._receipts[digest] for digest in known]
        answer = pb.RoundApplied(round=order.commit.round, receipts=[*receipts, *earlier])
        if order.commit.round in self._again:  # the newest round that has taken effect may be a later one
            self._again[order.commit.round] = answer
        else:
            self._applied[order.commit.round] = answer
        while len(self._applied) > _REMEMBERED_ROUNDS:
            self._applied.popitem(last=False)
        for opened, receipt in zip(order.commands, receipts, strict=False):
            self._receipts[opened.ref.envelope_digest] = receipt
        while len(self._receipts) > _REMEMBERED_COMMANDS:
            self._receipts.popitem(last=False)
        return answer

    def _go_on_if_resumed_later(self) -> None:
        """Leave a pause that an order for a later step ends: whoever waits here never comes to that step.

        A replica that joined without having met the pause may have gone past it, and what is decided with it takes
        effect where it has not begun.
        """
        to_come = [each for each in (*self._recalled, *self._orders) if each.commit.effective_step > self.paused_before]
        if any(pause_change(self._not_yet_carried_out(each)) is False for each in to_come):
            self.paused_before = 0

    def _not_yet_carried_out(self, order: pb.CommitOrder) -> pb.CommitOrder:
        rest = [opened for opened in order.commands if opened.ref.envelope_digest not in self._receipts]
        return order if len(rest) == len(order.commands) else pb.CommitOrder(commit=order.commit, commands=rest)

    def _settle(self, number: int) -> None:
        self._decided = number
        if self._vote is None or self._vote.round <= number:
            self.promised_from = None
        if self._asked is not None and self._asked.round <= number:
            self._asked = None


def _by_step(order: pb.CommitOrder) -> tuple[int, int]:
    return order.commit.effective_step, order.commit.round


def pause_change(order: pb.CommitOrder) -> bool | None:
    """True where the order leaves the whole run paused, False where it resumes it, None where it says nothing."""
    change: bool | None = None
    for opened in order.commands:
        match opened.adaptation.WhichOneof("command"):
            case "pause_command" if not opened.adaptation.pause_command.seed_id:
                change = not opened.adaptation.pause_command.resume
            case "emergency_command" if opened.adaptation.emergency_command.level == pb.EmergencyLevel.EMERGENCY_HALT:
                change = True
    return change
