"""What a rank tells for good: its state at each epoch's end, and what a seed was worth that ended."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from itertools import chain, islice

import structlog
import torch

from esper.kasmina.seeds.field_report import field_report
from esper.leyline import contracts as pb
from esper.session.hardware import hardware_context
from esper.session.rank_status import RankStatus

MOST_KEPT = 1024
MOST_METRICS = 64
WARNING = pb.TelemetryLevel.TELEMETRY_WARNING
_LOSSES = ("validation_loss", "eval_loss", "val_loss")

log = structlog.get_logger()


class StatementQueue:
    """Numbers its statements from 1, and keeps each until Redis has it, so that a runtime that dies loses none.

    Beyond `most_kept` that wait the oldest goes, counted; with Redis away for so long that is a thousand epochs ago. It
    is told in the log at once, and once something is stored again as an event of the next row.
    """

    def __init__(self, status: RankStatus, run_id: str, say: Callable[[pb.ToRuntime], object]) -> None:
        self._status, self._run_id, self._say = status, run_id, say
        self.most_kept, self.num_dropped = MOST_KEPT, 0
        self._num_told_of = 0  # of those dropped
        self._waiting: deque[pb.Statement] = deque()
        self._told: set[str] = set()
        self._number = self._epoch = 0

    @property
    def num_waiting(self) -> int:
        """Statements that are not known to be stored."""
        return len(self._waiting)

    def begin(self, epoch: int) -> None:
        """Of the epochs completed before this process nothing is told; seeds that ended then are told again."""
        self._epoch = epoch
        self.orders_carried_out()

    def look(self, step: int, epoch: int) -> None:
        """Tell of an epoch that has ended since. `step` is the next to begin, `epoch` how many are completed."""
        if epoch > self._epoch:
            self._epoch = epoch
            self._tell(pb.Statement(state=self._state(step, epoch)))

    def orders_carried_out(self) -> None:
        """Tell of seeds that have ended since; from rank 0, as every rank has the same verdicts."""
        if self._status.identity.rank:
            return
        reports = [one for seed in self._status.executor.reports() if (one := field_report(seed)) is not None]
        for report in reports:
            if report.report_id not in self._told:
                self._tell(pb.Statement(report=report))
        self._told = {report.report_id for report in reports}  # what is known no more is not told again

    def stored(self, number: int) -> None:
        """Let go of what came up to this number."""
        while self._waiting and self._waiting[0].number <= number:
            self._waiting.popleft()
        if self.num_dropped > self._num_told_of:
            num = str(self.num_dropped - self._num_told_of)
            self._status.rows.note(WARNING, "statements.dropped", num=num, in_all=str(self.num_dropped))
            self._num_told_of = self.num_dropped

    def say_again(self) -> None:
        """To a runtime that was started anew."""
        for statement in self._waiting:
            self._say(pb.ToRuntime(statement=statement))

    def _tell(self, statement: pb.Statement) -> None:
        self._number += 1
        statement.incarnation, statement.number = self._status.rows.incarnation, self._number
        self._waiting.append(statement)
        if len(self._waiting) > self.most_kept:
            self._drop(self._waiting.popleft())
        self._say(pb.ToRuntime(statement=statement))

    def _drop(self, statement: pb.Statement) -> None:
        self.num_dropped += 1
        state, report = statement.state, statement.report
        of = f"epoch {state.current_epoch}" if statement.HasField("state") else f"report {report.report_id}"
        log.warning("statement.dropped", of=of, num_dropped=self.num_dropped, num_kept=self.most_kept)

    def _state(self, step: int, epoch: int) -> pb.SystemStatePacket:
        status = self._status
        notes, measured = status.notes, status.rows.last
        losses = (notes[name] for name in _LOSSES if name in notes)
        first = next(status.model.parameters(), None)
        return pb.SystemStatePacket(
            version=1,
            packet_id=f"{status.identity.name[:40]}/{epoch}",
            current_epoch=epoch,
            global_step=step - 1,
            validation_accuracy=notes.get("accuracy", math.nan),
            validation_loss=next(losses, math.nan),
            training_loss=measured.get("loss", math.nan),
            timestamp_ns=time.time_ns(),
            hardware_context=hardware_context(torch.device("cpu") if first is None else first.device),
            training_metrics=dict(islice(chain(measured.items(), notes.items()), MOST_METRICS)),
            seed_states=status.seed_states(),
            source_subsystem=status.identity.name,
            training_run_id=self._run_id,
            experiment_name=self._run_id.rpartition("-")[0] or self._run_id,
        )
