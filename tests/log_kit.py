"""A small run's log, sealed with real keys: two commands, a proposal and a commit each, receipts of both ranks."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from google.protobuf.message import Message

from esper.leyline import contracts as pb
from esper.leyline.archive import Entry
from esper.leyline.digest import barrier_digest
from esper.leyline.keys.keyring import MasterKeyring, RoleKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.runtime.history.logbook import Logbook, key_ids, opened, write
from esper.runtime.history.retrace import plans
from esper.version import running
from tests.rounds import optimizer, seed_command

NOW_MS = 1_700_000_000_000
WORKERS = ("worker-0", "worker-1")
RUN = "toy-0a1b2c3d"
GERMINATE = seed_command(pb.SeedOperation.SEED_OP_GERMINATE, site="head", blueprint="lora", parameters={"rank": 4})
ADOPT = optimizer(pb.OptimizerCommandType.OPTIMIZER_COMMAND_INITIALIZE_HOST)
REPORT = pb.WorkerReport(worker="worker-0", steps=40, parameter_digest=b"p" * 32)


class Writer:
    """Seals what each process of a run would say, a millisecond apart."""

    def __init__(self, run: str = RUN, master: MasterKeyring | None = None) -> None:
        self.book = Logbook(run)
        self.master = master or MasterKeyring.new(NOW_MS * 1_000_000)
        self._sealers: dict[tuple[Role, str], Sealer] = {}
        self._now_ms = NOW_MS

    def say(self, stream: str, role: Role, producer: str, message: Message) -> Entry:
        self._now_ms += 1
        entry = Entry(stream, f"{self._now_ms}-0", self.sealer(role, producer).seal(message))
        self.book.streams[stream].append(entry)
        return entry

    def pass_ms(self, milliseconds: int) -> None:
        """Let so much time go by."""
        self._now_ms += milliseconds

    def sealer(self, role: Role, producer: str) -> Sealer:
        if (role, producer) not in self._sealers:
            keys = self.master.derive(self.book.run_id, [role])
            self._sealers[role, producer] = Sealer(keys, role, producer, clock_ns=lambda: self._now_ms * 1_000_000)
        return self._sealers[role, producer]

    def decide(self, number: int, entry: Entry, command_id: str, step: int) -> None:
        """A round that names one command, and every answer to it."""
        proposal = pb.BarrierProposal(version=1, round=number, roster_generation=1, roster=WORKERS)
        self.say("decisions", Role.COORDINATOR, "coordinator", proposal)
        self.say("decisions", Role.COORDINATOR, "coordinator", commit(number, entry, command_id, step))
        accepted = pb.CommandReceipt(
            version=1,
            command_id=command_id,
            entry_id=entry.entry_id,
            status=pb.ReceiptStatus.RECEIPT_ACCEPTED,
            worker="coordinator",
            step=step,
            round=number,
        )
        self.say("receipts", Role.COORDINATOR, "coordinator", accepted)
        for worker in WORKERS:
            applied = pb.CommandReceipt()
            applied.CopyFrom(accepted)
            applied.status, applied.worker = pb.ReceiptStatus.RECEIPT_APPLIED, worker
            self.say("receipts", Role.WORKER, worker, applied)

    def record(self, rank: int, incarnation: int = 7, **said: Message) -> None:
        record = pb.RunRecord(version=1, worker=WORKERS[rank], incarnation=incarnation, rank=rank, world_size=2, **said)  # type: ignore[arg-type]
        self.say("receipts", Role.WORKER, WORKERS[rank], record)

    @property
    def keyring(self) -> RoleKeyring:
        return self.master.derive(self.book.run_id, [Role.OBSERVER])

    def save(self, path: Path) -> Path:
        self.book.keys = key_ids(self.book.entries)
        write(self.book, path)
        self.keyring.save(path.parent / "keyring.json")
        return path


def commit(number: int, entry: Entry, command_id: str, step: int) -> pb.BarrierCommit:
    sealed = sha256(entry.sealed).digest()
    ref = pb.CommittedCommand(
        stream=entry.stream, entry_id=entry.entry_id, command_id=command_id, envelope_digest=sealed
    )
    return pb.BarrierCommit(
        version=1,
        round=number,
        roster_generation=1,
        effective_step=step,
        commands=[ref],
        digest=barrier_digest(step, [ref], []),
    )


def began(**fields: object) -> pb.RunBegan:
    given = {
        "first_step": 1,
        "parameter_digest": b"i" * 32,
        "num_threads": 1,
        "esper_version": running(),
        "script": ["-m", "toy"],
    }
    return pb.RunBegan(**{**given, **fields})  # type: ignore[arg-type]


def toy(run: str = RUN, *, second_step: int = 30, rank: float = 4, ended: bool = True, why: str = "") -> Writer:
    """A whole run of two ranks."""
    writer = Writer(run)
    for number in range(2):
        writer.record(number, began=began())
    command = pb.AdaptationCommand()
    command.CopyFrom(GERMINATE)
    command.seed_command.parameters["rank"] = rank
    writer.decide(1, writer.say("commands", Role.CONTROLLER, "controller", command), command.command_id, 10)
    writer.decide(2, writer.say("optimizer", Role.OPTIMIZER, "controller", ADOPT), ADOPT.command_id, second_step)
    for number, worker in enumerate(WORKERS if ended else ()):
        report = pb.WorkerReport()
        report.CopyFrom(REPORT)
        report.worker = worker
        writer.record(number, ended=pb.RunEnded(report=report, round_applied=2, not_replayable=why))
    return writer


def planned(writer: Writer) -> list[pb.ReplayPlan]:
    return plans(writer.book.run_id, opened(writer.book, writer.keyring))
