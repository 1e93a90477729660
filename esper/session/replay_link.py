"""What stands in for the runtime on a replay: it tells the trainer, step by step, what the log says was decided."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError

from esper.errors import SettingError
from esper.leyline import contracts as pb
from esper.leyline.durable import replacing
from esper.leyline.validate.bounds import PROMISE_STEPS

REPLAY = "ESPER_REPLAY"
"""Names the folder of a replay to attach(): there lie the plan of each rank and a keyring, and there it reports."""


@dataclass(frozen=True, slots=True)
class ReplayPlace:
    """The folder of one replay."""

    folder: Path

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ReplayPlace | None:
        """None: this process trains for the first time."""
        return cls(Path(environment[REPLAY])) if environment.get(REPLAY) else None

    @property
    def keyring(self) -> Path:
        """Signs the checkpoints of the replay, which nobody else reads."""
        return self.folder / "keyring.json"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def plan_file(self, rank: int) -> Path:
        return self.folder / f"plan-{rank}.bin"

    def report_file(self, rank: int) -> Path:
        return self.folder / f"report-{rank}.bin"

    def plan(self, rank: int) -> pb.ReplayPlan:
        """SettingError where there is none for this rank."""
        path = self.plan_file(rank)
        try:
            return pb.ReplayPlan.FromString(path.read_bytes())
        except (OSError, DecodeError) as error:
            raise SettingError(REPLAY, str(path), "a folder that `esper replay` made for these ranks") from error


@dataclass
class ReplayLink:
    """The trainer's end of a link to nobody. Orders come as early as they came then at the latest; all is stored."""

    plan: pb.ReplayPlan
    path: Path
    report: pb.ReplayReport = field(default_factory=pb.ReplayReport)
    next_step: Callable[[], int] = lambda: 1
    alive: bool = True
    num_starts: int = 1
    decided: str = ""
    doorbell: bytes = b"\1"  # each step looks
    _said: list[pb.ToTrainer] = field(default_factory=list)
    _newest: int = 0

    def __post_init__(self) -> None:
        self._orders = deque(self.plan.orders)

    def start(self) -> None:
        """Nothing is there to be started."""

    def poll(self, timeout_s: float = 0.0) -> list[pb.ToTrainer]:
        """What is due within a vote's promise, and answers to what was said."""
        said, self._said = self._said, []
        horizon = self.next_step() + PROMISE_STEPS
        while self._orders and self._orders[0].commit.effective_step <= horizon:
            said.append(self._told(self._orders.popleft()))
        return said

    def _told(self, order: pb.CommitOrder) -> pb.ToTrainer:
        """Decided before one that took effect earlier, it was carried out again by a process that had resumed."""
        if order.commit.round < self._newest:
            return pb.ToTrainer(recalled=pb.Recalled(orders=[order]))
        self._newest = order.commit.round
        return pb.ToTrainer(commit=order)

    def send(self, message: pb.ToRuntime, timeout_s: float = 1.0) -> None:
        """Keep how it began, say how far it is, and write the report with the farewell."""
        match message.WhichOneof("message"):
            case "heartbeat":
                self._show(message.heartbeat.step)
            case "record" if message.record.HasField("began"):
                self.report.began.CopyFrom(message.record.began)
            case "statement":
                stored = pb.StatementStored(number=message.statement.number)
                self._said.append(pb.ToTrainer(statement_stored=stored))
            case "farewell":
                self.report.report.CopyFrom(message.farewell.report)
                with replacing(self.path) as file:
                    file.write(self.report.SerializeToString())
                self._said.append(pb.ToTrainer(report_stored=pb.ReportStored()))

    def _show(self, step: int) -> None:
        """In a file beside the report, for whoever waits: only to look at, so that a full disk ends no replay by it."""
        path = self.path.with_name(f"step-{self.plan.rank}")
        aside = path.with_suffix(".new")
        with suppress(OSError):
            aside.write_text(str(step))
            aside.replace(path)

    def rows_lane_free(self) -> bool:
        return True

    def send_rows(self, message: pb.ToRuntime) -> None:
        """Measurements were counted when they were made; here they are only let go of."""
        self._said.append(all_stored(message.rows))

    def close(self, timeout_s: float = 5.0) -> None:
        self.alive = False


def all_stored(rows: pb.TelemetryRows) -> pb.ToTrainer:
    """The answer of a runtime that has taken all of them."""
    return pb.ToTrainer(rows_stored=pb.RowsStored(through_sequence=rows.first_sequence + len(rows.timestamp_ns) - 1))
