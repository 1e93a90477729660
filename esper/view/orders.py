"""The commands of a run, newest last, each with what became of it."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Literal

from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.leyline.lifecycle import reason_name
from esper.leyline.seal import Opened
from esper.view.naming import by_value

MOST_ORDERS = 512
NOWHERE = (0, 0)
Status = Literal["published", "accepted", "applied", "rejected", "failed"]
Command = pb.AdaptationCommand | pb.OptimizerCommand
_Receipt = pb.ReceiptStatus


@dataclass
class Order:
    """One entry of a command stream: what was asked, where its envelope is readable, and the answers to it."""

    command_id: str
    entry_id: str
    command: Command | None = None
    producer: str = ""
    verdict: pb.CommandReceipt | None = None
    outcomes: dict[str, pb.CommandReceipt] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    """Workers whose outcome is that: each answer asks for them, and looks through no others of hundreds."""

    @property
    def at_ms(self) -> int:
        """When the server took it."""
        return _place(self.entry_id)[0]

    @property
    def seed_id(self) -> str:
        """The seed that it names; empty: none, or its content is not readable."""
        return seed_named(self.command) if self.command is not None else ""

    @property
    def goes_back(self) -> bool:
        """Whether it is read to be a rollback."""
        return isinstance(self.command, pb.AdaptationCommand) and self.command.HasField("rollback_command")

    @property
    def answers(self) -> list[pb.CommandReceipt]:
        """The verdict, then each rank's outcome by name."""
        said = [self.verdict] if self.verdict is not None else []
        return [*said, *(self.outcomes[worker] for worker in sorted(self.outcomes, key=by_value))]

    @property
    def refusal(self) -> pb.CommandReceipt | None:
        """The first of the answers that says why not; None: there is none."""
        if self.verdict is not None and self.verdict.status == _Receipt.RECEIPT_REJECTED:
            return self.verdict
        return self.outcomes[min(self.failed, key=by_value)] if self.failed else None

    @property
    def status(self) -> Status:
        if (refusal := self.refusal) is not None:
            return "rejected" if refusal.status == _Receipt.RECEIPT_REJECTED else "failed"
        if self.verdict is None:
            return "published"
        return "applied" if len(self.outcomes) >= max(1, self.verdict.world_size) else "accepted"

    @property
    def reason(self) -> str:
        """Of a refusal; empty: it was not refused."""
        return reason_name(self.refusal.reason) if self.refusal is not None else ""


@dataclass
class Orders:
    """By stream entry and id: a replayed or forged copy lies in another entry than the command that it imitates, and
    two streams may have a command each under one entry id, of one millisecond."""

    most: int = MOST_ORDERS
    by_entry: OrderedDict[str, list[Order]] = field(default_factory=OrderedDict)
    num_published: int = 0
    num_applied: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    _first_answered: tuple[int, int] | None = None  # oldest entry that an answer was read for
    _judged: tuple[tuple[int, int], tuple[int, int]] | None = None  # before that: of :commands, of :optimizer

    def note_command(self, command: Command, entry_id: str, producer: str) -> Order:
        """A command as it lies on its stream. A repeat of the reading changes nothing."""
        order = self._order(command.command_id, entry_id)
        order.command, order.producer = command, producer
        return order

    def note_receipt(self, receipt: pb.CommandReceipt) -> Order:
        """An answer whose sealing role may say so; the first verdict counts, and the first outcome of each rank."""
        order = self._order(receipt.command_id, receipt.entry_id)
        place = _place(receipt.entry_id)
        self._first_answered = min(place, self._first_answered or place) if place > NOWHERE else self._first_answered
        before = order.status
        if receipt.status in (_Receipt.RECEIPT_ACCEPTED, _Receipt.RECEIPT_REJECTED):
            order.verdict = order.verdict or receipt
        else:
            outcome = order.outcomes.setdefault(receipt.worker, receipt)
            order.failed |= {receipt.worker} if outcome.status == _Receipt.RECEIPT_FAILED else set()
        self._count(before, order)
        return order

    def note_commit(self, commit: pb.BarrierCommit) -> None:
        """The first that is read. What it says is judged was answered earlier, and those answers may be gone by now."""
        if self._judged is None:
            self._judged = _place(commit.commands_position), _place(commit.optimizer_position)

    def find(self, entry_id: str, command_id: str = "") -> Order | None:
        """The order of this entry; without an id, as in the answer to an envelope that was refused, the first there."""
        known = self.by_entry.get(entry_id, [])
        return next((one for one in known if command_id == one.command_id or "" in (command_id, one.command_id)), None)

    def answered(self, entry_id: str) -> Order | None:
        """What was answered to an entry that does not open: not that of another stream's command, under the same id."""
        return next((one for one in self.by_entry.get(entry_id, []) if one.command is None), None)

    def about(self, opened: Opened) -> Order | None:
        """The order that this message is, or answers; None: it is about none."""
        match opened.message:
            case pb.CommandReceipt() as receipt:
                return self.find(receipt.entry_id, receipt.command_id)
            case pb.AdaptationCommand() | pb.OptimizerCommand() as command:
                return self.find(opened.entry_id, command.command_id)
            case _:
                return None

    @property
    def newest(self) -> list[Order]:
        """In the order in which the server took them, oldest first.

        Without those whose answers are older than what was read: what became of them is not known.
        """
        there = (order for orders in self.by_entry.values() for order in orders)
        return sorted(filter(self.is_told, there), key=lambda order: _place(order.entry_id))

    @property
    def num_untold(self) -> int:
        """Those that are kept and left out there."""
        return sum(not self.is_told(order) for orders in self.by_entry.values() for order in orders)

    def is_told(self, order: Order) -> bool:
        """Whether what became of it is among what was read."""
        if order.verdict is not None or order.outcomes:
            return True
        commands, optimizer = self._judged or (NOWHERE, NOWHERE)
        place, judged = (
            _place(order.entry_id),
            optimizer if isinstance(order.command, pb.OptimizerCommand) else commands,
        )
        return place >= (self._first_answered or NOWHERE) and place > judged

    def _order(self, command_id: str, entry_id: str) -> Order:
        known = self.find(entry_id, command_id)
        if known is None:
            known = Order(command_id, entry_id)
            self.by_entry.setdefault(entry_id, []).append(known)
            self.num_published += 1
            while len(self.by_entry) > self.most:
                self.by_entry.popitem(last=False)
        known.command_id = known.command_id or command_id
        return known

    def _count(self, before: Status, order: Order) -> None:
        if order.status == before:
            return
        if order.status in ("rejected", "failed"):
            self.rejected[order.reason] += 1
        elif order.status == "applied":
            self.num_applied += 1


def seed_named(command: Command) -> str:
    """The seed that a command is about; empty: none."""
    if isinstance(command, pb.OptimizerCommand):
        return "" if command.optimizer_id == "host" else command.optimizer_id
    match command.WhichOneof("command"):
        case "seed_command":
            return command.seed_command.seed_id
        case "circuit_breaker":
            return command.circuit_breaker.seed_id
        case "pause_command":
            return command.pause_command.seed_id
        case _:
            return ""


def _place(entry_id: str) -> tuple[int, int]:
    """Where it lies; a worker may have written anything into its answer."""
    try:
        return entry_order(entry_id)
    except ValueError:
        return NOWHERE
