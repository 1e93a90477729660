"""A run's keys, what its controller and coordinator write, and a runtime with the other end of its link."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from esper.bus.connect import Redis
from esper.bus.names import key
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.leyline.frames import FrameDecoder
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.runtime.access import Access
from esper.runtime.beside.assembly import assembled
from esper.runtime.beside.lanes import Lanes
from esper.runtime.beside.loop import Beside
from esper.runtime.beside.namesake import Newcomer
from esper.runtime.beside.packets import Origin

ME = "worker-0"
PATIENCE_S = 120.0


@dataclass
class Trainer:
    """The other end of the link."""

    control: socket.socket
    rows: socket.socket

    def hang_up(self) -> None:
        self.control.close()
        self.rows.close()

    async def hears(self, what: str = "commit") -> pb.ToTrainer:
        """The next such message."""
        decoder = FrameDecoder(pb.ToTrainer)
        while data := await asyncio.get_running_loop().sock_recv(self.control, 1 << 16):
            for message in decoder.feed(data):
                if message.WhichOneof("message") == what:
                    return message
        raise AssertionError("it was told of none")


class Run:
    """One run's keys, and what its controller and coordinator write."""

    def __init__(self, redis: Redis, redis_url: str, run_id: str) -> None:
        self.redis, self.url, self.run_id = redis, redis_url, run_id
        master = MasterKeyring.new(time.time_ns())
        self.keyring = master.derive(run_id, [Role.WORKER])
        self.controller = Sealer(master.derive(run_id, [Role.CONTROLLER]), Role.CONTROLLER, "controller")
        self.coordinator = Sealer(master.derive(run_id, [Role.COORDINATOR]), Role.COORDINATOR, "coordinator")

    async def add(self, log: str, sealed: bytes) -> str:
        at: bytes = await self.redis.execute_command("XADD", key(self.run_id, log), "*", "m", sealed)
        return at.decode()

    async def commit(self, number: int, entry_id: str, sealed: bytes) -> str:
        digest = hashlib.sha256(sealed).digest()
        refs = [pb.CommittedCommand(stream="commands", entry_id=entry_id, command_id="c1", envelope_digest=digest)]
        decision = pb.BarrierCommit(
            version=1, round=number, effective_step=9, commands=refs, digest=barrier_digest(9, refs, []), lease_token=1
        )
        return await self.add("decisions", self.coordinator.seal(decision))

    @asynccontextmanager
    async def runtime(
        self, decided: str = "", newcomer: Newcomer | None = None
    ) -> AsyncIterator[tuple[Beside, Trainer]]:
        (control, ours), (rows, our_rows) = socket.socketpair(), socket.socketpair()
        ours.setblocking(False)
        lanes = await Lanes.adopt(control.detach(), rows.detach())
        access, trainer = Access(self.run_id, self.url, self.keyring, Path()), Trainer(ours, our_rows)
        origin = Origin(ME, "r0")
        try:
            async with assembled(access, origin, lanes, newcomer=newcomer, decided=decided) as beside:
                beside.look_up_s = 0.05
                yield beside, trainer
        finally:
            trainer.hang_up()
            await lanes.close()
            writers = lanes.to_trainer, lanes.rows_writer
            await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)


@pytest.fixture
def steered(redis: Redis, redis_url: str, run_id: str) -> Run:
    return Run(redis, redis_url, run_id)


async def num_looks(redis: Redis) -> int:
    """How often the server was asked for entries by their ids."""
    asked = (await redis.info("commandstats")).get("cmdstat_xrange", {"calls": 0})
    return int(asked["calls"])


async def serves(beside: Beside) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await beside.serve(asyncio.Event())


async def connected(redis: Redis) -> set[bytes]:
    """Who is connected to the server, by the server's numbers."""
    return {row.split()[0] for row in (await redis.ask(("CLIENT", "LIST"))).splitlines()}
