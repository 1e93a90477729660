"""A committed order carried out on the live training state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import torch

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.tolaria.fossils import FossilGradients
from esper.tolaria.optimizers.optimizers import OptimizerOutcome, Optimizers, Trainee


class SeedOutcome(Protocol):
    """What became of a seed operation on this rank, in numbers of the wire's enumerations."""

    @property
    def status(self) -> int: ...
    @property
    def reason(self) -> int: ...
    @property
    def detail(self) -> str: ...
    @property
    def stage(self) -> int: ...
    @property
    def gate(self) -> int: ...
    @property
    def evidence(self) -> Mapping[str, float]: ...
    @property
    def fossilized(self) -> Sequence[torch.nn.Parameter]: ...
    @property
    def culled(self) -> bool: ...


class SeedExecutor(Protocol):
    """The seeds of a model, as far as an order concerns them."""

    @property
    def seeds(self) -> Mapping[str, Trainee]: ...
    def apply(self, command: pb.SeedCommand, step: int, epoch: int) -> SeedOutcome: ...
    def request(self, request: pb.SeedRequest, step: int, epoch: int) -> SeedOutcome: ...
    def pause(self, seed_id: str, paused: bool) -> SeedOutcome: ...
    def set_breaker(self, command: pb.CircuitBreakerCommand, step: int, epoch: int) -> SeedOutcome: ...


class PruningExecutor(Protocol):
    """The masks of a model, as far as an order concerns them."""

    def apply(self, response: pb.StructuralPruningResponse, step: int) -> SeedOutcome: ...
    def request(self, request: pb.StructuralPruningRequest, step: int) -> SeedOutcome: ...


class StateKeeper(Protocol):
    """Takes and restores the whole training state of this rank."""

    def take(self, step: int) -> None: ...
    def restore(self, snapshot_step: int, step: int) -> None: ...


@dataclass
class Steering:
    """Carries out orders between two steps. Knows no sockets and no votes; every rank calls it before the same step."""

    worker: str
    executor: SeedExecutor
    optimizers: Optimizers
    states: StateKeeper
    fossils: FossilGradients
    clock_ns: Callable[[], int]
    pruning: PruningExecutor
    num_applied: int = 0
    num_failed: int = 0
    judged: list[pb.CommandReceipt] = field(default_factory=list)
    """What became of the requests of the last order, in order: no receipt of a command tells of them."""

    def carry_out(self, order: pb.CommitOrder, step: int, epoch: int) -> list[pb.CommandReceipt]:
        """Apply every command of the order, then the requests taken over; return this rank's receipts, in order."""
        if order.commit.snapshot and not _rolls_back(order):  # taking one could evict the one to go back to
            self.states.take(step)
        receipts = [self._receipt(opened, self._command(opened, step, epoch), order, step) for opened in order.commands]
        self.judged = [self._request(self._culled_if_refused(each), step, epoch) for each in order.commit.requests]
        return receipts

    def _command(self, opened: pb.OpenedCommand, step: int, epoch: int) -> SeedOutcome | OptimizerOutcome:
        if opened.WhichOneof("body") == "optimizer":
            return self.optimizers.apply(opened.optimizer, step, self.executor.seeds)
        command = opened.adaptation
        match command.WhichOneof("command"):
            case "seed_command":
                return self._seed(command.seed_command, step, epoch)
            case "optimizer_adjustment":
                return self.optimizers.adjust(command.optimizer_adjustment)
            case "rollback_command":
                return self._roll_back(opened.ref.snapshot_step, step)
            case "pause_command" if command.pause_command.seed_id:
                return self.executor.pause(command.pause_command.seed_id, not command.pause_command.resume)
            case "pause_command" | "emergency_command":
                return _applied("")  # the boundary holds or frees the run
            case "circuit_breaker":
                breaker = command.circuit_breaker
                outcome = self.executor.set_breaker(breaker, step, epoch)
                self._follow_up(breaker.seed_id, pb.SeedOperation.SEED_OP_UNKNOWN, outcome)
                return outcome
            case "structural_pruning":
                return self.pruning.request(command.structural_pruning, step)
            case "pruning_masks":
                return self.pruning.apply(command.pruning_masks, step)
            case other:
                return OptimizerOutcome(
                    status=pb.ReceiptStatus.RECEIPT_FAILED,
                    reason=pb.ReasonCode.REASON_NOT_SUPPORTED,
                    detail=f"{other} is not supported yet",
                )

    def _roll_back(self, snapshot_step: int, step: int) -> OptimizerOutcome:
        """Ranks hold the same snapshots, so that one which has given way by now fails on all of them alike."""
        try:
            self.states.restore(snapshot_step, step)
        except RefusedError as error:
            reason = cast(pb.ReasonCode, error.reason)
            return OptimizerOutcome(pb.ReceiptStatus.RECEIPT_FAILED, reason, error.detail)
        return _applied(f"rolled back to the snapshot of step {snapshot_step}")

    def _seed(self, command: pb.SeedCommand, step: int, epoch: int) -> SeedOutcome | OptimizerOutcome:
        if refused := self._refusal(command.seed_id, command.operation):
            return refused
        outcome = self.executor.apply(command, step, epoch)
        self._follow_up(command.seed_id, command.operation, outcome)
        return outcome

    def _request(self, request: pb.SeedRequest, step: int, epoch: int) -> pb.CommandReceipt:
        outcome = self.executor.request(request, step, epoch)
        self._follow_up(request.seed_id, request.operation, outcome)
        return self._told(request.seed_id, outcome, step)

    def _refusal(self, seed_id: str, operation: int) -> OptimizerOutcome | None:
        """Why a seed can't begin to train: one of its parameters is the host's, or another seed's."""
        seed = self.executor.seeds.get(seed_id)
        begins = operation == pb.SeedOperation.SEED_OP_START_TRAINING and not self.optimizers.has(seed_id)
        return self.optimizers.refusal(seed) if begins and seed is not None else None

    def _culled_if_refused(self, request: pb.SeedRequest) -> pb.SeedRequest:
        if (refused := self._refusal(request.seed_id, request.operation)) is None:
            return request
        cull = pb.SeedOperation.SEED_OP_CULL
        return pb.SeedRequest(seed_id=request.seed_id, operation=cull, reason=refused.reason, detail=refused.detail)

    def _follow_up(self, seed_id: str, operation: int, outcome: SeedOutcome) -> None:
        """Keep optimizers in step with what became of the seed."""
        if outcome.culled:
            self.optimizers.drop(seed_id)
        if outcome.status != pb.ReceiptStatus.RECEIPT_APPLIED:
            return
        if operation == pb.SeedOperation.SEED_OP_START_TRAINING and not self.optimizers.has(seed_id):
            self.optimizers.create(self.executor.seeds[seed_id])
        if operation == pb.SeedOperation.SEED_OP_FOSSILIZE:
            self._join_host(seed_id, list(outcome.fossilized))

    def _join_host(self, seed_id: str, parameters: list[torch.nn.Parameter]) -> None:
        if joined := self.optimizers.fossilize(seed_id, parameters):
            self.fossils.adopt(joined)

    def _receipt(
        self, opened: pb.OpenedCommand, outcome: SeedOutcome | OptimizerOutcome, order: pb.CommitOrder, step: int
    ) -> pb.CommandReceipt:
        receipt = self._told(opened.ref.command_id, outcome, step)
        receipt.round, receipt.entry_id, receipt.time_ns = order.commit.round, opened.ref.entry_id, self.clock_ns()
        self.count(receipt)
        return receipt

    def _told(self, command_id: str, outcome: SeedOutcome | OptimizerOutcome, step: int) -> pb.CommandReceipt:
        facts: dict[str, Any] = {}
        if not isinstance(outcome, OptimizerOutcome):
            facts = {"stage": outcome.stage, "gate": outcome.gate, "evidence": dict(outcome.evidence)}
        return pb.CommandReceipt(
            version=1,
            command_id=command_id,
            status=cast(pb.ReceiptStatus, outcome.status),
            reason=cast(pb.ReasonCode, outcome.reason),
            worker=self.worker,
            step=step,
            detail=outcome.detail,
            **facts,
        )

    def count(self, receipt: pb.CommandReceipt) -> None:
        """One that is pending is counted when it is decided on."""
        self.num_applied += receipt.status == pb.ReceiptStatus.RECEIPT_APPLIED
        self.num_failed += receipt.status == pb.ReceiptStatus.RECEIPT_FAILED


def _rolls_back(order: pb.CommitOrder) -> bool:
    return any(opened.adaptation.HasField("rollback_command") for opened in order.commands)


def _applied(detail: str) -> OptimizerOutcome:
    return OptimizerOutcome(status=pb.ReceiptStatus.RECEIPT_APPLIED, reason=pb.ReasonCode.REASON_NONE, detail=detail)
