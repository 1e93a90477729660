"""A load of barrier rounds: those that the run holds anyway, and those that commands of no effect call for."""

from __future__ import annotations

from google.protobuf.message import Message

from esper.bench.load.tally import Tally
from esper.leyline import contracts as pb


class Rounds:
    """Rounds between their proposal and what was decided, and the commands that wait for one. Knows no clock."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._proposed: dict[int, float] = {}
        self._waiting: dict[str, float] = {}

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def expect(self, command_id: str, due_s: float) -> None:
        self._waiting[command_id] = due_s

    def forget(self, command_id: str) -> None:
        self._waiting.pop(command_id, None)

    def hear(self, message: Message, now_s: float) -> None:
        match message:
            case pb.BarrierProposal():
                self.on_proposal(message, now_s)
            case pb.BarrierCommit():
                self.on_commit(message, now_s)
            case pb.BarrierAbort():
                self.on_abort(message)

    def on_proposal(self, proposal: pb.BarrierProposal, now_s: float) -> None:
        self._proposed.setdefault(proposal.round, now_s)

    def on_commit(self, commit: pb.BarrierCommit, now_s: float) -> None:
        """`round`: by the coordinator's clock; `seen`: between the two messages, as this process read them."""
        proposed_s = self._proposed.pop(commit.round, None)
        if proposed_s is None:
            return  # it began before we looked, or is a repeat
        self.tally.counts["committed"] += 1
        self.tally.note("round", commit.latency_ms / 1e3)
        self.tally.note("seen", now_s - proposed_s)
        for command in commit.commands:
            due_s = self._waiting.pop(command.command_id, None)
            if due_s is not None:
                self.tally.note("decided", now_s - due_s)

    def on_abort(self, abort: pb.BarrierAbort) -> None:
        if self._proposed.pop(abort.round, None) is not None:
            self.tally.counts["aborted"] += 1
