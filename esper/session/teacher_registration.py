"""Answers to rounds that registered a teacher: given once it is decided on, for all ranks before the same step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from esper.leyline import contracts as pb
from esper.tolaria.optimizers.optimizers import PENDING
from esper.tolaria.teachers.teachers import Teachers

FAILED = pb.ReceiptStatus.RECEIPT_FAILED


class Said(NamedTuple):
    """What can be said after an order: to the runtime, and to log and telemetry."""

    answers: list[pb.RoundApplied]
    receipts: list[pb.CommandReceipt]


@dataclass
class TeacherRegistrations:
    """Holds an answer back while one of its receipts is pending, and has the ranks agree on their teacher.

    `recorded` are the receipts of a run that is replayed, by stream and entry: each teacher is taken where it was.
    """

    teachers: Teachers | None
    count: Callable[[pb.CommandReceipt], None]
    recorded: Mapping[str, pb.CommandReceipt] = field(default_factory=dict)
    _open: deque[tuple[pb.RoundApplied, pb.CommandReceipt, pb.CommandReceipt]] = field(default_factory=deque)

    def after(self, answer: pb.RoundApplied, receipts: Sequence[pb.CommandReceipt], step: int) -> Said:
        """An order was carried out before `step`. All ranks call it alike."""
        # The boundary has copied them: a repeat of the round, or of its commands, is answered from either.
        late = [pair for pair in zip(receipts, answer.receipts, strict=False) if pair[0].status == PENDING]
        self._open += [(answer, *pair) for pair in late]
        said = Said([] if late else [answer], [each for each in receipts if each.status != PENDING])
        if self.teachers is not None and not self._is_early(step):
            then = self._then()
            refused = (then.detail or "as in the run") if then.status == FAILED else ""
            outcome = self.teachers.settle(step, refused=refused)
            if outcome is not None:
                self._close(
                    pb.CommandReceipt(status=outcome.status, reason=outcome.reason, detail=outcome.detail, step=step),
                    said,
                )
        return said

    def end(self, step: int) -> Said:
        """The run ends before these are decided: they have failed."""
        said = Said([], [])
        if self.teachers is not None:
            self.teachers.close()
        while self._open:
            reason, detail = pb.ReasonCode.REASON_CANCELLED, "the run ended before the teacher was loaded"
            self._close(pb.CommandReceipt(status=FAILED, reason=reason, detail=detail, step=step), said)
        return said

    def _close(self, outcome: pb.CommandReceipt, said: Said) -> None:
        answer, *both = self._open.popleft()
        for receipt in both:
            receipt.MergeFrom(outcome)
        self.count(both[0])
        said.receipts.append(both[0])
        if not any(answer is other for other, *_ in self._open):
            said.answers.append(answer)

    def _is_early(self, step: int) -> bool:
        """On a replay, whether the oldest one was decided later than before this step; else it is waited for."""
        if not (self.recorded and self._open and self.teachers is not None):
            return False
        if self._then().step > step:
            return True
        self.teachers.wait()
        return False

    def _then(self) -> pb.CommandReceipt:
        """On a replay, what became of the oldest one in the run."""
        then = self.recorded.get(f"optimizer/{self._open[0][1].entry_id}") if self._open else None
        return then or pb.CommandReceipt()
