"""The commands of a run, newest last, each with what became of it."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Literal

from esper.leyline import contracts as pb
from esper.leyline.lifecycle import reason_name

MOST_ORDERS = 512
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
    is_signed: bool = False  # by Ed25519, as its envelope says; whether it fits is for an audit
    verdict: pb.CommandReceipt | None = None
    outcomes: dict[str, pb.CommandReceipt] = field(default_factory=dict)

    @property
    def at_ms(self) -> int:
        """When the server took it."""
        return int(self.entry_id.partition("-")[0] or 0)

    @property
    def seed_id(self) -> str:
        """The seed that it names; empty: none, or its content is not readable."""
        return seed_named(self.command) if self.command is not None else ""

    @property
    def answers(self) -> list[pb.CommandReceipt]:
        """The verdict, then each rank's outcome by name."""
        said = [self.verdict] if self.verdict is not None else []
        return [*said, *(self.outcomes[worker] for worker in sorted(self.outcomes))]

    @property
    def refusal(self) -> pb.CommandReceipt | None:
        """The answer that says why not; None: there is none."""
        bad = (_Receipt.RECEIPT_REJECTED, _Receipt.RECEIPT_FAILED)
        return next((receipt for receipt in self.answers if receipt.status in bad), None)

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
    """By stream entry: a replayed or forged copy lies in another entry than the command that it imitates."""

    by_entry: OrderedDict[str, Order] = field(default_factory=OrderedDict)
    num_published: int = 0
    num_applied: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    _first_answered: tuple[int, int] | None = None  # oldest entry that an answer was read for

    def note_command(self, command: Command, entry_id: str, producer: str, *, is_signed: bool) -> Order:
        """A command as it lies on its stream. A repeat of the reading changes nothing."""
        order = self._order(command.command_id, entry_id)
        order.command, order.producer, order.is_signed = command, producer, is_signed
        return order

    def note_receipt(self, receipt: pb.CommandReceipt) -> Order:
        """An answer whose sealing role may say so; the first verdict counts, and the first outcome of each rank."""
        order = self._order(receipt.command_id, receipt.entry_id)
        place = _place(receipt.entry_id)
        self._first_answered = min(place, self._first_answered or place)
        before = order.status
        if receipt.status in (_Receipt.RECEIPT_ACCEPTED, _Receipt.RECEIPT_REJECTED):
            order.verdict = order.verdict or receipt
        else:
            order.outcomes.setdefault(receipt.worker, receipt)
        self._count(before, order)
        return order

    @property
    def newest(self) -> list[Order]:
        """In the order in which the server took them, oldest first.

        Without those from before the first answer that was read: what became of them is not known.
        """
        first = self._first_answered or (0, 0)
        known = [order for order in self.by_entry.values() if order.answers or _place(order.entry_id) >= first]
        return sorted(known, key=lambda order: _place(order.entry_id))

    def _order(self, command_id: str, entry_id: str) -> Order:
        known = self.by_entry.get(entry_id)
        if known is None:
            known = self.by_entry[entry_id] = Order(command_id, entry_id)
            self.num_published += 1
            while len(self.by_entry) > MOST_ORDERS:
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
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds or 0), int(number or 0)
