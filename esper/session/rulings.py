"""Verdicts on gates as they were made in the run that is replayed: what was measured by a clock is not judged anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import structlog

from esper.errors import RefusedError, TrainingError
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kasmina.gates.rules import Evidence, GateResult, SanityEvidence
from esper.kasmina.moves import Rulings
from esper.leyline import contracts as pb
from esper.session.replay_link import ReplayLink
from esper.tolaria.optimizers.optimizers import OptimizerOutcome
from esper.tolaria.steering import SeedOutcome, Steering

APPLIED, FAILED = pb.ReceiptStatus.RECEIPT_APPLIED, pb.ReceiptStatus.RECEIPT_FAILED
MOST_DIFFERENCES = 20

log = structlog.get_logger()


@dataclass
class RecordedRulings:
    """Rules as the receipt of the operation in hand says; anew, and counted, where there is none."""

    fresh: Rulings
    report: pb.ReplayReport
    receipt: pb.CommandReceipt | None = None

    def admit(self, *names: str) -> None:
        """Breakers open and close by the clock: whether one kept an operation out is on its receipt."""
        if self.receipt is None:
            self.fresh.admit(*names)
        elif self.receipt.reason == pb.ReasonCode.REASON_BREAKER_OPEN and not self.receipt.gate:
            raise RefusedError(self.receipt.reason, self.receipt.detail)

    def verdict(self, evidence: Evidence, config: KasminaConfig) -> GateResult:
        receipt, result = self.receipt, self.fresh.verdict(evidence, config)
        if receipt is None or (receipt.status == FAILED and not receipt.gate):
            self.report.judged_anew += 1
            return result
        passed = receipt.status == APPLIED
        if passed and not result.passed and isinstance(evidence, SanityEvidence):
            raise TrainingError(
                f"{receipt.command_id} passed its first gate in the run, and can't here: {result.detail}"
            )
        if passed != result.passed:
            log.warning("verdict.of_then", command=receipt.command_id, then=passed, measured_now=result.detail)
        culled = receipt.stage == pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED
        non_finite = receipt.reason == pb.ReasonCode.REASON_NON_FINITE
        hopeless = culled and not passed
        return GateResult(passed, receipt.detail, dict(receipt.evidence), non_finite, hopeless, result.score)


@dataclass
class ReplayedSteering(Steering):
    """Carries orders out as they were carried out, each operation judged by its own receipt in the order of the commit,
    and keeps what went otherwise."""

    rulings: RecordedRulings = field(kw_only=True)
    link: ReplayLink = field(kw_only=True)

    def __post_init__(self) -> None:
        self._then = {(each.command_id, each.entry_id): each for each in self.link.plan.verdicts.values()}
        self._judged = {each.round: each.outcomes for each in self.link.plan.judged}
        self._commands: Iterator[pb.CommandReceipt | None] = iter(())
        self._requests: Iterator[pb.CommandReceipt | None] = iter(())
        self._rollbacks: Iterator[pb.CommandReceipt | None] = iter(())

    def carry_out(self, order: pb.CommitOrder, step: int, epoch: int) -> list[pb.CommandReceipt]:
        plan = self.link.plan
        then = [plan.verdicts.get(verdict_key(opened.ref)) for opened in order.commands]
        both = [(opened.adaptation, receipt) for opened, receipt in zip(order.commands, then, strict=True)]
        self._commands = (receipt for command, receipt in both if command.HasField("seed_command"))
        self._rollbacks = (receipt for command, receipt in both if command.HasField("rollback_command"))
        self._requests = iter(self._judged.get(order.commit.round, ()))
        return super().carry_out(order, step, epoch)

    def count(self, receipt: pb.CommandReceipt) -> None:
        """And keep what went otherwise: with a teacher, once that is decided on."""
        super().count(receipt)
        self._compare(receipt, self._then.get((receipt.command_id, receipt.entry_id)))

    def _seed(self, command: pb.SeedCommand, step: int, epoch: int) -> SeedOutcome | OptimizerOutcome:
        self.rulings.receipt = next(self._commands, None)
        return super()._seed(command, step, epoch)

    def _request(self, request: pb.SeedRequest, step: int, epoch: int) -> pb.CommandReceipt:
        self.rulings.receipt = next(self._requests, None)
        return super()._request(request, step, epoch)

    def _roll_back(self, snapshot_step: int, step: int) -> OptimizerOutcome:
        """What could not be gone back to then is not: a checkpoint had given way, on a disk that is not here."""
        then = next(self._rollbacks, None)
        if then is not None and then.status == FAILED:
            return OptimizerOutcome(FAILED, then.reason, then.detail)
        self.link.report.judged_anew += then is None
        return super()._roll_back(snapshot_step, step)

    def _compare(self, met: pb.CommandReceipt, then: pb.CommandReceipt | None) -> None:
        pending = met.status == pb.ReceiptStatus.RECEIPT_UNKNOWN  # a teacher
        if then is None or pending or (met.status, met.step) == (then.status, then.step):
            return
        if len(self.link.report.differences) < MOST_DIFFERENCES:
            self.link.report.differences.append(
                f"round {met.round}, step {met.step}, {met.command_id}: "
                f"{receipt_word(then)} in the run, {receipt_word(met)} now"
            )


def verdict_key(ref: pb.CommittedCommand) -> str:
    """Of a command's receipt in a plan."""
    return f"{ref.stream}/{ref.entry_id}"


def receipt_word(receipt: pb.CommandReceipt) -> str:
    """What became of a command, in few words."""
    done = "applied" if receipt.status == APPLIED else f"failed ({receipt.detail})"
    return f"{done} at step {receipt.step}"


def steering_of(link: object, executor: Executor) -> Callable[..., Steering]:
    """What makes the Steering: of a live run, or of a replay."""
    if not isinstance(link, ReplayLink):
        return Steering
    rulings = executor.rulings = RecordedRulings(executor.rulings, link.report)
    return partial(ReplayedSteering, rulings=rulings, link=link)
