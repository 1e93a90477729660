"""The processes of one run on this machine: what each is started with, and where it leaves its traces."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from esper.bus import connect, names, runs
from esper.bus.embedded import EmbeddedRedis
from esper.bus.inbox import Inbox
from esper.errors import EsperError
from esper.leyline.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.runtime import logbook
from esper.runtime.supervise import ProcessDiedError, Supervisor, last_lines

T = TypeVar("T")

WORLD_SIZE = 2
REGIONS = tuple(f"r{rank}" for rank in range(WORLD_SIZE))
WORKERS = tuple(f"worker-{rank}" for rank in range(WORLD_SIZE))
TRAINERS = tuple(f"trainer-{rank}" for rank in range(WORLD_SIZE))
SNAPSHOT_EVERY = "100"  # steps; the demo is over before a coordinator's own 1,000
ROLES = {
    "worker": [Role.WORKER],
    "coordinator": [Role.COORDINATOR],
    "regional": [Role.REGIONAL],
    "global": [Role.GLOBAL],
    "controller": [Role.CONTROLLER, Role.OPTIMIZER],
    "observer": [Role.OBSERVER],
}
"""Keyring: the roles whose keys it holds."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """One run: its record, its directory of traces, and its processes, which are started one kind at a time."""

    record: runs.RunRecord
    directory: Path
    supervisor: Supervisor
    redis: EmbeddedRedis

    @property
    def stop_file(self) -> Path:
        """Trainers end after the epoch in which this appears."""
        return self.directory / "stop"

    async def start_servers(self) -> None:
        """Coordinator and aggregators."""
        kept = {"SNAPSHOT_EVERY": SNAPSHOT_EVERY, "ARCHIVE": str(self.directory / logbook.LOG)}
        await self._start("coordinator", "esper.workers.coordinator", "coordinator", **kept)
        for region in REGIONS:
            await self._start(f"regional-{region}", "esper.workers.regional", "regional", REGION=region)
        await self._start("global", "esper.workers.global_", "global", REGIONS=",".join(REGIONS))

    async def start_trainers(self) -> None:
        """Ranks of one process group on this machine, each in its region."""
        port = str(free_port())
        for rank, (name, worker, region) in enumerate(zip(TRAINERS, WORKERS, REGIONS, strict=True)):
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD_SIZE)}
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
            env = self._env("worker", NAME=worker, REGION=region, STOP_FILE=str(self.stop_file))
            await self.supervisor.start(
                name, module("esper.workers.trainer"), {**env, **ranks, **meeting, "OMP_NUM_THREADS": "1"}
            )

    async def run_script(self, name: str, module_name: str) -> None:
        """A controller's script: start it, and wait until it has ended with 0."""
        await self.supervisor.start(name, module(module_name), self._env("controller", NAME=name), may_end=True)
        await self.supervisor.ended(name)

    @contextmanager
    def naming_redis(self) -> Iterator[None]:
        """Where Redis has died, that is what went wrong, whoever met it first."""
        try:
            yield
        except EsperError as error:
            if (code := self.redis.exit_code) is None:
                raise
            log = self.directory / "logs" / "redis.log"
            shutil.copyfile(self.redis.log, log)  # the original goes with the run
            raise ProcessDiedError("redis", code, log, last_lines(log)) from error

    def ask_trainers_to_end(self) -> None:
        self.supervisor.let_end(*TRAINERS)
        self.stop_file.touch()

    async def _start(self, name: str, module_name: str, keyring: str, **settings: str) -> None:
        await self.supervisor.start(name, module(module_name), self._env(keyring, **{"NAME": name, **settings}))

    def _env(self, keyring: str, **settings: str) -> dict[str, str]:
        common = {
            "RUN": self.record.run_id,
            "REDIS_URL": self.record.url,
            "KEYRING": str(self.record.keyring(keyring)),
        }
        return {f"ESPER_{name}": value for name, value in {**common, **settings}.items()} | {"PYTHONUNBUFFERED": "1"}


@asynccontextmanager
async def fleet(name: str, runs_directory: Path) -> AsyncIterator[Fleet]:
    """A listed run with a Redis and keys of its own; whatever was started is gone at the end."""
    with runs.register(name, started_ns=time.time_ns()) as record:
        directory = runs_directory.absolute() / record.run_id
        directory.mkdir(parents=True)
        make_keys(record)
        with EmbeddedRedis(record.directory) as redis:
            await open_groups(record)
            supervisor = Supervisor(directory / "logs")
            try:
                yield Fleet(record, directory, supervisor, redis)
            finally:
                await supervisor.stop()
                await logbook.keep(record.url, record.run_id, record.keyring("observer"), directory / logbook.LOG)


def make_keys(record: runs.RunRecord) -> None:
    """One keyring per kind of process, from a master that is forgotten at once: the run cannot outlive its keys."""
    master = MasterKeyring.new(time.time_ns())
    for keyring, roles in ROLES.items():
        master.derive(record.run_id, roles).save(record.keyring(keyring))


async def open_groups(record: runs.RunRecord) -> None:
    """Make every group before the first producer starts, so that none of what is written can be trimmed unread."""
    async with connect.writer(record.url) as redis:
        await connect.wait_ready(redis)
        await connect.check_server(redis)
        for stream, group in groups(record.run_id):
            await Inbox(redis, redis, stream, group, group).open()


def groups(run_id: str) -> list[tuple[str, str]]:
    """Stream and group, by the table of streams."""
    found = []
    for stream in names.STREAMS:
        keys = [names.region_key(run_id, region, stream.name) for region in REGIONS] if stream.regional else []
        for group in stream.group.split("; "):
            if not group.startswith("none"):
                members = WORKERS if group == "one per worker" else (group,)
                found += [(key, member) for key in keys or [names.key(run_id, stream.name)] for member in members]
    return found


def module(name: str) -> list[str]:
    # -P: a directory named esper where the user stands, such as a clone, is not the package.
    return [sys.executable, "-P", "-m", name]


def free_port() -> int:
    """A TCP port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def interruptible(work: Coroutine[object, object, T]) -> T:
    """Run it; SIGTERM and SIGHUP end it as Ctrl-C does, with its clean-up, by KeyboardInterrupt."""

    async def until_signalled() -> T:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await work

    try:
        return asyncio.run(until_signalled())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
