"""A coordinator and both tiers as processes of their own, and a trainer in this one, on a Redis that a test harms."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

import esper
from esper.bus import connect, names
from esper.bus.embedded import EmbeddedRedis
from esper.bus.publisher import Publisher
from esper.bus.tail import last
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener, Sealer
from esper.session import Session
from tests.faults.processes import Running, wait_until
from tests.system.loop import Loop
from tests.system.processes import PATIENCE_S, Start, buried, started

REGION, WORKER = "r0", "worker-0"
SERVERS = {"coordinator": Role.COORDINATOR, "regional": Role.REGIONAL, "global_": Role.GLOBAL}


class Town(Loop):
    """One run of one rank. Steps are the test's to take; everything else goes on by itself."""

    def __init__(
        self,
        server: EmbeddedRedis,
        run_id: str,
        directory: Path,
        url: str = "",
        servers: Iterable[str] = SERVERS,
        start: Start = started,
    ) -> None:
        self.server, self.run_id, self.directory, self._started = server, run_id, directory, start
        self.url = url or server.url
        self.master = MasterKeyring.new(time.time_ns())
        keys = self.master.derive(run_id, [Role.CONTROLLER, Role.OBSERVER])
        self._sealer = Sealer(keys, Role.CONTROLLER, "town")
        self._opener = Opener(keys, guard=None, accept=list(Domain))
        self.servers = {name: self._start(name, SERVERS[name]) for name in servers}
        super().__init__()
        environment = self._environment(WORKER, Role.WORKER)
        with stderr_to(directory / "runtime.log"):
            self.run: Session = esper.attach(
                self.model, optimizer=self.optimizer, sites=["0"], region=REGION, name=WORKER, environment=environment
            )

    def settle_down(self) -> None:
        """Train, at leisure, to a step at which no round is under way and none is due soon."""
        while self.run.step_number % 100 != 30 or self.run.exchange.boundary.promised_from is not None:
            self.run.exchange.pump(0.01)
            self.step()

    def publish(self, message: Message) -> None:
        """Seal a command; Redis acknowledges it."""
        asyncio.run(self._add(self.sealed_now(message)))

    def sealed_now(self, message: Message) -> bytes:
        """A command under the controller's seal."""
        return self._sealer.seal(message)

    def order(self, *words: Any) -> Any:
        """Tell Redis something; what it answers."""
        return asyncio.run(self._ask(*words))

    def said(self, stream: str, region: str = "") -> list[Any]:
        """Every message on a stream, opened."""
        key = names.region_key(self.run_id, region, stream) if region else names.key(self.run_id, stream)
        now_ms = time.time_ns() // 1_000_000
        return [self._opener.open(sealed, entry_id, now_ms).message for entry_id, sealed in self.sealed(key)]

    @property
    def num_counted(self) -> int:
        """Packets, as the global tier has told of them so far."""
        return sum(aggregate.num_packets for aggregate in self.said("global"))

    def await_counted(self, num: int) -> None:
        """Wait until the global tier has told of so many packets."""
        wait_until(lambda: self.num_counted >= num, f"{num} packets are counted", PATIENCE_S)

    def sealed(self, key: str) -> list[tuple[str, bytes]]:
        """Every entry of a stream."""
        return asyncio.run(self._last(key))

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def start_another(self, name: str) -> Running:
        """A new process in the place of one that was killed, or not; it writes to the same log. Returns the old one."""
        old, self.servers[name] = self.servers[name], self._start(name, SERVERS[name])
        return old

    def close(self) -> None:
        self.run.close()
        for process in self.servers.values():
            process.terminate()
        buried(*self.servers.values())

    def _environment(self, name: str, role: Role) -> dict[str, str]:
        path = self.directory / f"{role}.json"
        self.master.derive(self.run_id, [role]).save(path)
        common = {"RUN": self.run_id, "REDIS_URL": self.url, "KEYRING": str(path), "NAME": name}
        return {f"ESPER_{key}": value for key, value in {**common, "REGION": REGION, "REGIONS": REGION}.items()}

    def _start(self, name: str, role: Role) -> Running:
        return self._started(f"esper.workers.{name}", self.directory / f"{name}.log", self._environment(name, role))

    async def _add(self, sealed: bytes) -> None:
        async with connect.writer(self.url) as redis:
            await Publisher(redis).add(names.key(self.run_id, "commands"), sealed)

    async def _ask(self, *words: Any) -> Any:
        async with connect.writer(self.url) as redis:
            return await redis.execute_command(*words)

    async def _last(self, key: str) -> list[tuple[str, bytes]]:
        async with connect.writer(self.url) as redis:
            return await last(redis, key, 100_000)


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """What is started in the block, and inherits, writes there for as long as it lives."""
    kept = os.dup(2)
    with path.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def rate(value: float) -> pb.AdaptationCommand:
    """A command whose effect is easily seen."""
    return pb.AdaptationCommand(
        version=1,
        command_id=f"lr-{value}",
        command_type=pb.CommandType.COMMAND_OPTIMIZER,
        priority=pb.MessagePriority.MESSAGE_PRIORITY_NORMAL,
        optimizer_adjustment=pb.OptimizerAdjustment(optimizer_id="host", hyperparameters={"lr": value}),
    )


def rate_is(town: Town, value: float) -> Callable[[], bool]:
    return lambda: town.run.optimizers.hyperparameters()["lr"] == value
