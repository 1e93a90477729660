"""A load of commands that change nothing, each timed until every rank has said that it carried it out."""

from __future__ import annotations

from dataclasses import dataclass, field

from google.protobuf.message import Message

from esper.bench.load.tally import Tally
from esper.leyline import contracts as pb

_Status = pb.ReceiptStatus


@dataclass(slots=True)
class _OnItsWay:
    due_s: float
    accepted: bool = False
    world_size: int = 1
    workers: set[str] = field(default_factory=set)


class Answered:
    """Commands on their way, and what receipts say of them. Knows neither Redis nor a clock."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._waiting: dict[str, _OnItsWay] = {}

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def expect(self, command_id: str, due_s: float) -> None:
        """Before it is sent: its receipts may overtake the reply of Redis."""
        self._waiting[command_id] = _OnItsWay(due_s)

    def forget(self, command_id: str) -> None:
        """It was not sent, or not for all that is known."""
        self._waiting.pop(command_id, None)

    def hear(self, message: Message, now_s: float) -> None:
        if isinstance(message, pb.CommandReceipt):
            self.on_receipt(message, now_s)

    def on_receipt(self, receipt: pb.CommandReceipt, now_s: float) -> None:
        """Take an answer to a command of ours; repeats change nothing."""
        command = self._waiting.get(receipt.command_id)
        if command is None:
            return
        match receipt.status:
            case _Status.RECEIPT_ACCEPTED if not command.accepted:
                command.accepted, command.world_size = True, max(1, receipt.world_size)
                self.tally.counts["accepted"] += 1
                self.tally.note("accepted", now_s - command.due_s)
            case _Status.RECEIPT_APPLIED:
                command.workers.add(receipt.worker)
            case _Status.RECEIPT_REJECTED | _Status.RECEIPT_FAILED as status:
                self.tally.counts["rejected" if status == _Status.RECEIPT_REJECTED else "failed"] += 1
                del self._waiting[receipt.command_id]
                return
        if command.accepted and len(command.workers) >= command.world_size:
            self.tally.counts["applied"] += 1
            self.tally.note("applied", now_s - command.due_s)
            del self._waiting[receipt.command_id]
