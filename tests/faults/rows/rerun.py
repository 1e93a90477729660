"""Random short runs, of trainers that are killed or distil from teachers, run again to the same parameters."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import Message

from esper.bus import names
from esper.cli.running.ports import free_port
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener, Sealer
from esper.runtime.history import logbook
from esper.runtime.history.audit import audit
from tests.faults.nursery import Cradle, nursed
from tests.faults.processes import ROOT, Child, wait_until
from tests.faults.roles.grower import STOP, TEACHERS
from tests.faults.roles.reborn import ORDER
from tests.faults.row import Amounts, Result, Row
from tests.faults.server import UNKEPT, Server

Op, Kind = pb.SeedOperation, pb.OptimizerCommandType
SEEDS, SITES, BLUEPRINTS = ("s0", "s1", "s2"), ("body", "head"), {"lora": {"rank": 2.0}, "mlp": {"hidden": 4.0}}
STEPWISE = (
    Op.SEED_OP_START_TRAINING,
    Op.SEED_OP_START_GRAFTING,
    Op.SEED_OP_STABILIZE,
    Op.SEED_OP_EVALUATE,
    Op.SEED_OP_FOSSILIZE,
)
ANSWERED_S, REPLAYED_S, ATTEMPTS = 60.0, 180.0, 5
ACCEPTED = pb.ReceiptStatus.RECEIPT_ACCEPTED
GROWER, COORDINATOR = "tests.faults.roles.grower", "esper.workers.coordinator"
FORKED = "-S -m tests.faults.roles.reborn"
Command = pb.AdaptationCommand | pb.OptimizerCommand


def run(directory: Path, amounts: Amounts, seed: int) -> Result:
    result = Result()
    with Server(directory / "redis", options=UNKEPT) as server, nursed(directory, [GROWER, COORDINATOR]) as nursery:
        for number in range(amounts["runs"]):
            draw = random.Random(f"{seed}/{number}")
            dies = number < amounts["deaths"]
            ranks = 2 if number < amounts["pairs"] else 1
            kind = draw.choice(("adamw", "sgd"))
            taught = number >= amounts["runs"] - amounts["taught"]
            with Garden(directory / f"run-{number}", server, nursery, ranks, kind, taught) as garden:
                garden.tend(draw, amounts["commands"], result, dies=dies)
                replayed(garden, result)
                result.count("back_culled_and_died", int(dies and garden.has_gone_back and garden.has_culled))
    return result


def replayed(garden: Garden, result: Result) -> None:
    """What the tools say of the log that the run has left."""
    asyncio.run(logbook.keep(garden.server.url, garden.run_id, garden.keyring("observer"), garden.folder / "log"))
    path = garden.folder / "log" / logbook.EXPORT
    found = audit(logbook.read_file(path), garden.master.derive(garden.run_id, [Role.OBSERVER]))
    result.expect(not found.findings, f"{garden.run_id}: its log is not sound: {found.findings[:3]}")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "esper.cli.main", "replay", str(path), "--json", "--script", FORKED],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), ORDER: json.dumps(garden.order)},
        capture_output=True,
        text=True,
        timeout=REPLAYED_S,
        check=False,
    )
    result.sample("replay_s", time.monotonic() - began)
    result.count("runs")
    if done.returncode:
        result.expect(False, f"{garden.run_id} came to something else: {(done.stdout + done.stderr)[-1500:]}")
        return
    told = json.loads(done.stdout)
    result.count("steps", told["steps"])
    result.expect(not told["differences"], f"{garden.run_id}: {told['differences']}")


@dataclass
class Garden:
    """One run: its processes, and the controller that is this one."""

    folder: Path
    server: Server
    nursery: Cradle
    num_ranks: int
    kind: str
    taught: bool  # has teachers to distil from
    master: MasterKeyring = field(default_factory=lambda: MasterKeyring.new(time.time_ns()))
    _trainers: list[Child] = field(default_factory=list)
    has_gone_back: bool = False
    has_culled: bool = False
    _num_commands: int = 0
    _heard: str = "0"
    _receipts: dict[str, list[pb.CommandReceipt]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.teachers = [teacher(self.folder, seed) for seed in range(2)] if self.taught else []
        self.run_id, self._stop_file = names.new_run_id("rerun"), self.folder / "stop"
        coordinating = self.environment(Role.COORDINATOR, "coordinator", SNAPSHOT_EVERY="40")
        self._coordinator = self.nursery.role(COORDINATOR, {}, self.folder / "coordinator.log", coordinating)
        keys = self.master.derive(self.run_id, [Role.CONTROLLER, Role.OPTIMIZER])
        self._sealers = {role: Sealer(keys, role, "gardener") for role in (Role.CONTROLLER, Role.OPTIMIZER)}
        observer = self.master.derive(self.run_id, [Role.OBSERVER])
        self._opener = Opener(observer, guard=None, accept=list(Domain))

    def __enter__(self) -> Garden:
        self._coordinator.start()
        self.start_trainers()
        return self

    def __exit__(self, *_: object) -> None:
        for child in (*self._trainers, self._coordinator):
            child.discard()

    def keyring(self, role: str) -> Path:
        path = self.folder / f"{role}.json"
        if not path.exists():
            self.master.derive(self.run_id, [Role(role)]).save(path)
        return path

    def environment(self, role: Role, name: str, **settings: str) -> dict[str, str]:
        common = {"RUN": self.run_id, "REDIS_URL": self.server.url, "KEYRING": str(self.keyring(role)), "NAME": name}
        told = {f"ESPER_{key}": value for key, value in {**common, **settings}.items()}
        return {**told, "PYTHONPATH": str(ROOT)}

    @property
    def growing(self) -> dict[str, str]:
        """Arguments of its trainers."""
        return {"folder": str(self.folder), "kind": self.kind}

    @property
    def order(self) -> dict[str, object]:
        """What the nursery is told when a replay wants one of its trainers."""
        return {"nursery": str(self.nursery.socket), "module": GROWER, "arguments": self.growing}

    def start_trainers(self) -> None:
        port = str(free_port())
        self._trainers = []
        for rank in range(self.num_ranks):
            environment = self.environment(Role.WORKER, f"worker-{rank}") | {STOP: str(self._stop_file)}
            if self.num_ranks > 1:
                environment |= {"RANK": str(rank), "WORLD_SIZE": str(self.num_ranks), "GLOO_SOCKET_IFNAME": "lo"}
                environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            log = self.folder / f"trainer-{rank}.log"
            self._trainers.append(self.nursery.role(GROWER, self.growing, log, environment).start())

    def tend(self, draw: random.Random, num_commands: int, result: Result, *, dies: bool) -> None:
        """Publish what is drawn, each answered before the next; let the trainers die half-way; end in order."""
        death = draw.randrange(num_commands // 3, num_commands) if dies else -1
        commands = list(drawn(draw, num_commands))
        for digest in [*self.teachers, *self.teachers[:1]]:
            commands.insert(draw.randrange(1, num_commands), registered(digest))
            result.count("teachers")
        for number, command in enumerate(commands):
            if number == death:
                self._die()
                result.count("deaths")
            self._persist(command, result)
        self._stop_file.touch()
        for trainer in self._trainers:
            wait_until(lambda trainer=trainer: not trainer.alive, "the trainers end", ANSWERED_S)  # type: ignore[misc]
            assert trainer.process is not None
            result.expect(trainer.process.poll() == 0, f"{self.run_id}: {trainer.last_words()}")

    def _persist(self, command: Command, result: Result) -> None:
        """Publish it until every rank has applied it, or a reason is given that is not a gate's; not for ever."""
        for _ in range(ATTEMPTS):
            entry_id = self._publish(command)
            wait_until(lambda entry_id=entry_id: bool(self._answers(entry_id)), f"{entry_id} is answered", ANSWERED_S)  # type: ignore[misc]
            answer = self._answers(entry_id)[0]
            is_done = answer.status == pb.ReceiptStatus.RECEIPT_APPLIED
            result.count("applied" if is_done else "not_applied")
            if is_done and isinstance(command, pb.AdaptationCommand):
                self.has_gone_back |= command.HasField("rollback_command")
                self.has_culled |= command.seed_command.operation == Op.SEED_OP_CULL
            if answer.reason != pb.ReasonCode.REASON_GATE_FAILED:
                return

    def _die(self) -> None:
        for trainer in self._trainers:
            trainer.discard()
        self.start_trainers()

    def _publish(self, command: Command) -> str:
        self._num_commands += 1
        command.command_id = f"c{self._num_commands}"
        of_optimizer = isinstance(command, pb.OptimizerCommand)
        sealed = self._sealers[Role.OPTIMIZER if of_optimizer else Role.CONTROLLER].seal(command)
        stream = names.key(self.run_id, "optimizer" if of_optimizer else "commands")
        entry_id: bytes = self.server.ask("XADD", stream, "*", "m", sealed)
        return entry_id.decode()

    def _answers(self, entry_id: str) -> list[pb.CommandReceipt]:
        """A refusal, or what every rank says that became of it."""
        self._hear()
        said = [each for each in self._receipts.get(entry_id, ()) if each.status != ACCEPTED]
        refused = any(each.status == pb.ReceiptStatus.RECEIPT_REJECTED for each in said)
        return said if refused or len({each.worker for each in said}) == self.num_ranks else []

    def _hear(self) -> None:
        """Receipts since the last call, waiting a moment for the first."""
        stream = names.key(self.run_id, "receipts")
        read = self.server.ask("XREAD", "COUNT", 256, "BLOCK", 100, "STREAMS", stream, self._heard)
        for entry_id, fields in read[0][1] if read else ():
            self._heard = entry_id.decode()
            message = self._opener.open(fields[b"m"], self._heard, int(time.time() * 1000)).message
            if isinstance(message, pb.CommandReceipt):
                self._receipts.setdefault(message.entry_id, []).append(message)


def drawn(draw: random.Random, num: int) -> Iterator[Command]:
    """Commands that a run can mean, though not all of them when they come."""
    yield pb.OptimizerCommand(version=1, command_type=Kind.OPTIMIZER_COMMAND_INITIALIZE_HOST, optimizer_id="host")
    yield from begun(draw, "s0")
    yield of_kind(pb.CommandType.COMMAND_ROLLBACK, rollback_command=pb.RollbackCommand(reason="early"))
    pending: list[Command] = []
    for number in range(num - 6):
        if number == num // 2:
            yield on_seed(Op.SEED_OP_CULL, "s0")
        if not pending:
            pending = list(thought_of(draw))
        yield pending.pop(0)
    yield from (each for each in pending if each.command_type == pb.CommandType.COMMAND_PAUSE)  # none stays paused


def thought_of(draw: random.Random) -> Iterator[Command]:
    """One thing to try: a seed's next stages most of the time."""
    seed = draw.choice(SEEDS)
    match draw.randrange(12):
        case 0 | 1 | 2:
            yield from begun(draw, seed)
        case 3 | 4 | 5 | 6:
            for operation in STEPWISE[draw.randrange(3) :]:
                steps = {"steps": float(draw.randrange(3, 20)), "alpha": draw.choice((0.5, 1.0))}
                yield on_seed(operation, seed, parameters=steps if operation == Op.SEED_OP_START_GRAFTING else {})
        case 7:
            yield on_seed(Op.SEED_OP_CULL, seed)
        case 8:
            back = pb.RollbackCommand(reason="drawn")
            yield of_kind(pb.CommandType.COMMAND_ROLLBACK, rollback_command=back)
        case 9:
            adjusted = pb.OptimizerAdjustment(optimizer_id="host", hyperparameters={"lr": draw.uniform(0.001, 0.05)})
            yield of_kind(pb.CommandType.COMMAND_OPTIMIZER, optimizer_adjustment=adjusted)
        case 10:
            yield of_kind(pb.CommandType.COMMAND_PAUSE, pause_command=pb.PauseCommand())
            yield of_kind(pb.CommandType.COMMAND_PAUSE, pause_command=pb.PauseCommand(resume=True))
        case _:
            yield on_seed(Op.SEED_OP_RESET, seed)


def begun(draw: random.Random, seed: str) -> Iterator[Command]:
    """A seed that learns fast enough for its gates."""
    yield germinate(draw, seed)
    create, rate = Kind.OPTIMIZER_COMMAND_CREATE_SEED, {"lr": 0.03}
    yield pb.OptimizerCommand(version=1, command_type=create, optimizer_id=seed, hyperparameters=rate)
    yield on_seed(Op.SEED_OP_START_TRAINING, seed)


def teacher(folder: Path, seed: int) -> str:
    """The digest of one that lies where a grower looks for them."""
    from tests.teacher_kit import professor, saved  # with torch, which the other rows do without

    (folder / TEACHERS).mkdir(exist_ok=True)
    return saved(professor(seed), folder / TEACHERS)[1]


def registered(digest: str) -> pb.OptimizerCommand:
    kind = Kind.OPTIMIZER_COMMAND_REGISTER_TEACHER
    return pb.OptimizerCommand(version=1, command_type=kind, optimizer_id="host", teacher_digest=digest)


def germinate(draw: random.Random, seed: str) -> pb.AdaptationCommand:
    blueprint = draw.choice(list(BLUEPRINTS))
    parameters = {**BLUEPRINTS[blueprint], "auto": float(draw.random() < 0.5)}
    site = draw.choice(SITES)
    return on_seed(Op.SEED_OP_GERMINATE, seed, site=site, blueprint_id=blueprint, parameters=parameters)


def on_seed(operation: pb.SeedOperation, seed: str, **fields: object) -> pb.AdaptationCommand:
    command = pb.SeedCommand(operation=operation, seed_id=seed, **fields)  # type: ignore[arg-type]
    return of_kind(pb.CommandType.COMMAND_SEED, seed_command=command)


def of_kind(kind: pb.CommandType, **body: Message) -> pb.AdaptationCommand:
    priority = pb.MessagePriority.MESSAGE_PRIORITY_NORMAL
    return pb.AdaptationCommand(version=1, command_type=kind, priority=priority, **body)  # type: ignore[arg-type]


ROW = Row(
    "rerun",
    run,
    ci={"runs": 3, "deaths": 1, "pairs": 0, "taught": 1, "commands": 14},
    chunk={"runs": 10, "deaths": 5, "pairs": 3, "taught": 3, "commands": 40},
    num_chunks=10,
)
