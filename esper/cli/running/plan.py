"""What a run file comes to: the units of a run in the order in which they end, and what each is started with."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from esper.bus.client.credentials import FILES, PASSWORD, PASSWORD_FILE, USERNAME
from esper.bus.passwords import Held, file_of
from esper.bus.runs import RunRecord
from esper.cli.running.ports import free_port
from esper.leyline.keys.keyring import KEYRINGS
from esper.runtime.beside.launcher import BY_TORCHRUN
from esper.runtime.crew.runfile import RLIMITS, Kind, Limits, Process, RunFile, Trainer
from esper.runtime.crew.spawn import Program
from esper.runtime.crew.unit import Plan
from esper.runtime.history import logbook

Variables = Callable[[], Mapping[str, str]]
FRESH_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Without it ranks that torchrun starts again meet in the store of those before them."""
REDIS_VARIABLES = (USERNAME, PASSWORD, PASSWORD_FILE, *FILES.values())
"""Of a Redis outside; the run's own asks for no password, and refuses whoever gives one."""


@dataclass(frozen=True, slots=True)
class LocalRun:
    """One run on this machine: its record, and where it leaves its traces."""

    record: RunRecord
    directory: Path

    def user(self, role: str) -> Variables:
        """What each start of its processes adds to their environment: their Redis user, where the run has any."""
        if not self.record.passwords:
            return dict
        return Held(file_of(Path(self.record.passwords), self.record.run_id, role), "passwords")

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    def program(self, name: str, command: Sequence[str], kind: Kind, keyring: str, **settings: str) -> Program:
        """What this run's processes have in common goes below what the file says, and that below `settings`."""
        common = {
            "RUN": self.record.run_id,
            "REDIS_URL": self.record.url,
            "KEYRING": str(self.record.keyring(keyring)),
            "NAME": name,
        }
        given = {f"ESPER_{setting}": value for setting, value in {**common, **settings}.items()}
        environment = {"PYTHONUNBUFFERED": "1", **kind.environment, **given}
        without = (BY_TORCHRUN, *(REDIS_VARIABLES if self.record.has_own_redis else ()))
        return Program(name, resolved(command), environment, words(kind.limits), without)


def planned(read: RunFile, run: LocalRun) -> list[list[Plan]]:
    """Tiers of units; the first ends first."""
    regions = ",".join(read.regions)
    return [
        trainers(read, run),
        [
            served(read.regional, run, "regional", name, REGION=region)
            for region in read.regions
            for name in numbered(f"regional-{region}", read.regional.count)
        ],
        [served(read.global_, run, "global", name, REGIONS=regions) for name in numbered("global", read.global_.count)],
        [
            served(archiving(read.coordinator, run), run, "coordinator", name)
            for name in numbered("coordinator", read.coordinator.count)
        ],
        [process(name, each, run) for name, each in read.process.items()],
    ]


def trainers(read: RunFile, run: LocalRun) -> list[Plan]:
    """The ranks of one group on this machine as one unit, or a unit for each replica."""
    kind, regions = read.trainer, read.regions
    programs = [trainer(rank, kind, run, regions) for rank in range(kind.count)]
    user = run.user("worker") if programs else dict
    if kind.together and len(programs) > 1:
        return [steered("trainer", tuple(programs), kind, run, lambda: {**user(), **meeting_port()})]
    return [steered(program.name, (program,), kind, run, user) for program in programs]


def trainer(rank: int, kind: Trainer, run: LocalRun, regions: Sequence[str]) -> Program:
    """A rank is a replica, named after its number, unless it is one of several that are together.

    One alone may be a torchrun, whose ranks have names and regions of their own: it is given no name, and all regions.
    """
    where = {"REGIONS": ",".join(regions)} if kind.count == 1 else {"REGION": regions[rank % len(regions)]}
    unit = "trainer" if kind.together and kind.count > 1 else f"trainer-{rank}"
    stop = {"STOP_FILE": str(run.directory / f"stop-{unit}")} if kind.stop_by == "file" else {}
    made = run.program(f"worker-{rank}", kind.command, kind, "worker", **where, **stop)
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(kind.count)}
    meeting = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    together = {**meeting, **ranks} if kind.together and kind.count > 1 else {}
    own = ("ESPER_NAME", "ESPER_REGION") if kind.count == 1 else ()
    fresh_store = {FRESH_STORE: "1"} if kind.starts_ranks else {}
    common = {**fresh_store, **together, **made.environment}
    told = {name: value for name, value in common.items() if name not in own}
    return replace(made, name=f"trainer-{rank}", environment=told, without=(*made.without, *own))


def steered(name: str, programs: tuple[Program, ...], kind: Trainer, run: LocalRun, fresh: Variables) -> Plan:
    by_file = kind.stop_by == "file"
    return Plan(
        name,
        "trainer",
        programs,
        kind.restart,
        stop_s=kind.stop_s,
        may_end=True,
        trains=True,
        essential=kind.essential,
        stop_file=run.directory / f"stop-{name}" if by_file else None,
        finish_s=kind.finish_s,
        fresh=fresh,
    )


def served(kind: Kind, run: LocalRun, role: str, name: str, **settings: str) -> Plan:
    """One coordinator or aggregator; the module of the global tier is not named like a word of the language."""
    module = f"esper.workers.{'global_' if role == 'global' else role}"
    program = run.program(name, ["python", "-m", module], kind, role, **settings)
    fresh = run.user(role)
    return Plan(name, role, (program,), kind.restart, stop_s=kind.stop_s, essential=kind.essential, fresh=fresh)


def process(name: str, kind: Process, run: LocalRun) -> Plan:
    keyring = next(keyring for keyring, roles in KEYRINGS.items() if kind.keys in roles)
    program = run.program(name, kind.command, kind, keyring)
    return Plan(
        name,
        name,
        (program,),
        kind.restart,
        stop_s=kind.stop_s,
        may_end=True,
        essential=kind.essential,
        tells_ready=False,
        fresh=run.user(kind.user or keyring),
    )


def archiving(kind: Kind, run: LocalRun) -> Kind:
    """What a coordinator trims from the logs lies with the run's traces, unless the file says where else."""
    archive = {"ESPER_ARCHIVE": str(run.directory / logbook.LOG)}
    return kind.model_copy(update={"environment": {**archive, **kind.environment}})


def numbered(name: str, count: int) -> list[str]:
    """One keeps its name; of several each has a number."""
    return [name] if count == 1 else [f"{name}-{number}" for number in range(count)]


def meeting_port() -> dict[str, str]:
    """Where the ranks of a group meet: anew at each start, as the last one's may still be held."""
    return {"MASTER_PORT": str(free_port())}


def resolved(command: Sequence[str]) -> list[str]:
    """`python` is the one that runs this, and `esper` and `torchrun` are those beside it, whatever PATH says."""
    beside = Path(sys.executable).parent / command[0]
    if command[0] == "python":
        # -P: a directory named esper where the user stands, such as a clone, is not the package.
        return [sys.executable, *(["-P"] if command[1:2] == ["-m"] else []), *command[1:]]
    return [str(beside) if os.access(beside, os.X_OK) and beside.is_file() else command[0], *command[1:]]


def words(limits: Limits) -> str:
    """As spawn takes them."""
    told = [f"nice={limits.nice}"] if limits.nice else []
    given = ((number, unit, getattr(limits, key)) for key, (number, unit) in RLIMITS.items())
    return " ".join(told + [f"{number}={value * unit}" for number, unit, value in given if value is not None])
