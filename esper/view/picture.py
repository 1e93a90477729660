"""The picture of a run: takes each opened message to the part that it is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from esper.leyline import contracts as pb
from esper.leyline.entries import entry_ms
from esper.leyline.heartbeats import Sealed
from esper.leyline.kinds import Role
from esper.leyline.seal import Opened
from esper.view.alarms import Alarms
from esper.view.flow import Flow
from esper.view.orders import Command, Order, Orders
from esper.view.rounds import Rounds
from esper.view.seeds import Seeds
from esper.view.workers import NOT_BEGUN, Workers

COMMAND_STREAMS = ("commands", "optimizer")
_Receipt = pb.ReceiptStatus
_MAY_SAY = {
    _Receipt.RECEIPT_ACCEPTED: Role.COORDINATOR,
    _Receipt.RECEIPT_REJECTED: Role.COORDINATOR,
    _Receipt.RECEIPT_APPLIED: Role.WORKER,
    _Receipt.RECEIPT_FAILED: Role.WORKER,
}


class Look(Protocol):
    """What is read beside the messages, at one moment of the server's clock."""

    @property
    def at_ms(self) -> int: ...
    @property
    def totals(self) -> Mapping[bytes, bytes] | None:
        """Fields of the hash `totals`; None: they may not be read."""

    @property
    def lags(self) -> Mapping[tuple[str, str], int | None]:
        """Entries not yet read, by stream and group; None: too many to count."""

    @property
    def refused(self) -> Mapping[str, Mapping[str, int]]:
        """Messages refused by the processes that live, by stream and reason."""


@dataclass
class Picture:
    """One run. It has no clock: `now_ms` is the server's, as of the newest look or entry, or as it was told since."""

    run_id: str
    now_ms: int = 0
    heard_ms: int = 0  # of the newest look or entry
    decided_since_ms: int = 0  # from when on rounds were read
    workers: Workers = field(default_factory=Workers)
    seeds: Seeds = field(default_factory=Seeds)
    rounds: Rounds = field(default_factory=Rounds)
    orders: Orders = field(default_factory=Orders)
    flow: Flow = field(default_factory=Flow)
    alarms: Alarms = field(default_factory=Alarms)
    states: dict[str, pb.SystemStatePacket] = field(default_factory=dict)  # newest of each rank
    refused: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    _rollbacks: set[tuple[str, str]] = field(default_factory=set)  # entry and id of commands that commits name so

    def note(self, opened: Opened) -> None:
        """Take one message; streams in any order to one another, each in its own. What says nothing is passed over."""
        at_ms = entry_ms(opened.entry_id)
        self._hear(at_ms)
        match opened.message:
            case pb.Heartbeat() as beat:
                self._note_heartbeat(beat, at_ms, Sealed.of(opened))
            case pb.CommandReceipt() as receipt:
                self._note_receipt(receipt, opened.header.role)
            case pb.RunRecord() as record:
                self._note_record(record)
            case pb.AdaptationCommand() | pb.OptimizerCommand() as command:
                self._note_command(command, opened)
            case pb.BarrierCommit() | pb.BarrierAbort() as decision:
                self._note_decision(decision, at_ms)
            case pb.LeaderAnnouncement() as announcement:
                self.rounds.note_leader(announcement)
            case pb.EmergencySignal() as signal:
                self.alarms.note(signal)
            case pb.SystemStatePacket() as state:
                self.states[state.source_subsystem] = state
            case pb.FieldReport() as report:
                self.seeds.note_field_report(report)

    def look(self, look: Look) -> None:
        """Take what was read beside the messages."""
        self._hear(look.at_ms)
        if look.totals is not None:
            self.flow.note_totals(look.totals, look.at_ms)
        self.workers.note_lags(look.lags)
        self.refused = look.refused

    def tick(self, now_ms: int) -> None:
        """Let time pass, by the server's clock, where nothing came that tells it."""
        self.now_ms = max(self.now_ms, now_ms)

    @property
    def rejected(self) -> Counter[str]:
        """Messages by reason: those refused by any process, and commands refused by a judge or a rank.

        Each counts what it reads; of the command streams, which several read, the larger of the two counts is told.
        """
        told: Counter[str] = Counter()
        of_commands: Counter[str] = Counter()
        for stream, reasons in self.refused.items():
            (of_commands if stream in COMMAND_STREAMS else told).update(reasons)
        return told + (of_commands | self.orders.rejected)

    def _hear(self, at_ms: int) -> None:
        self.heard_ms = max(self.heard_ms, at_ms)
        self.tick(at_ms)

    def _note_heartbeat(self, beat: pb.Heartbeat, at_ms: int, sealed: Sealed) -> None:
        if not self.workers.note(beat, at_ms, sealed):
            return
        self.seeds.note_states(beat.worker, list(beat.seeds), at_ms)
        if beat.step > NOT_BEGUN:  # else it may yet find seeds in a checkpoint
            self.seeds.miss(beat.worker, list(beat.seeds), at_ms)
        if beat.HasField("report"):
            for report in beat.report.seeds:
                self.seeds.note_report(report)

    def _note_receipt(self, receipt: pb.CommandReceipt, role: Role) -> None:
        if _MAY_SAY.get(receipt.status) is role:
            self._tell_seed(self.orders.note_receipt(receipt))

    def _note_command(self, command: Command, opened: Opened) -> None:
        self._tell_seed(self.orders.note_command(command, opened.entry_id, opened.header.producer))

    def _note_record(self, record: pb.RunRecord) -> None:
        for outcome in record.judged.outcomes:  # of requests: the seed's id stands in place of a command's
            self.seeds.note_receipt(outcome.command_id, outcome)

    def _note_decision(self, decision: pb.BarrierCommit | pb.BarrierAbort, at_ms: int) -> None:
        if not self.rounds.note(decision):
            return
        self.decided_since_ms = self.decided_since_ms or at_ms
        if isinstance(decision, pb.BarrierAbort):
            self.workers.note_abort(decision)
        else:
            self.orders.note_commit(decision)
            self._note_rollbacks(decision)

    def _note_rollbacks(self, commit: pb.BarrierCommit) -> None:
        """A commit says of a rollback alone which snapshot was chosen, also to whoever can't read commands."""
        for ref in commit.commands:
            if ref.snapshot_step:
                self._rollbacks.add((ref.entry_id, ref.command_id))
                if (order := self.orders.find(ref.entry_id, ref.command_id)) is not None:
                    self._tell_seed(order)

    def _tell_seed(self, order: Order) -> None:
        """Command and answers come on different streams: whichever is first waits for the other."""
        if order.seed_id:
            for receipt in order.outcomes.values():
                self.seeds.note_receipt(order.seed_id, receipt)
        elif order.goes_back or (order.entry_id, order.command_id) in self._rollbacks:
            applied = (each for each in order.outcomes.values() if each.status == _Receipt.RECEIPT_APPLIED)
            if (done := next(applied, None)) is not None:
                by = f" of {order.producer}" if order.producer else ""
                self.seeds.note_rollback(done.step, f"{done.detail} by command {order.command_id}{by}")
