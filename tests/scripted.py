"""A run played by the test: real keys, real seals and a real Redis, with answers that the test dictates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from secrets import token_hex

import pytest
from google.protobuf.message import Message

from esper.bus import connect, names, runs, tail
from esper.bus.publisher import Publisher
from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opened, Opener, Sealer

WORKERS = ("worker-0", "worker-1")


class ScriptedRun:
    """One listed run of two workers in two regions; it says what the test tells it to."""

    def __init__(self, record: runs.RunRecord, redis: connect.Redis) -> None:
        self.run_id, self.name, self.url, self.redis = record.run_id, record.name, record.url, redis
        self.keyring: Path = record.keyring("controller")
        self.master = MasterKeyring.new(time.time_ns())
        self.master.derive(self.run_id, [Role.CONTROLLER, Role.OPTIMIZER]).save(self.keyring)
        self._sealers: dict[tuple[Role, str], Sealer] = {}
        self._opener = Opener(
            self.master.derive(self.run_id, [Role.COORDINATOR]),
            name="coordinator",
            guard=ReplayGuard(),
            accept=(Domain.COMMAND, Domain.OPTIMIZER),
        )

    async def say(self, stream: str, role: Role, producer: str, message: Message) -> str:
        """Seal a message and put it on a stream of the run, or of a region where `stream` is region/name."""
        if (role, producer) not in self._sealers:
            self._sealers[role, producer] = Sealer(self.master.derive(self.run_id, [role]), role, producer)
        region, _, name = stream.rpartition("/")
        key = names.region_key(self.run_id, region, name) if region else names.key(self.run_id, name)
        return await Publisher(self.redis).add(key, self._sealers[role, producer].seal(message))

    async def beat(self, epoch: int, *seeds: pb.SeedState, workers: tuple[str, ...] = WORKERS) -> None:
        """A heartbeat of each worker."""
        for worker in workers:
            rank = WORKERS.index(worker)
            heartbeat = pb.Heartbeat(
                version=1,
                worker=worker,
                rank=rank,
                world_size=len(WORKERS),
                region=f"region-{rank}",
                step=100 * epoch,
                epoch=epoch,
                time_ns=time.time_ns(),
                seeds=seeds,
                loss=0.5,
            )
            await self.say("heartbeats", Role.WORKER, worker, heartbeat)

    async def received(self, stream: str = "commands", count: int = 1) -> list[Opened]:
        """The first commands on a stream, opened as the coordinator would; waits for them."""
        found: list[Opened] = []
        async with aclosing(tail.follow(self.redis, names.key(self.run_id, stream), "0")) as entries:
            async for entry_id, sealed in entries:
                found.append(self._opener.open(sealed, entry_id, await connect.server_ms(self.redis)))
                if len(found) == count:
                    break
        return found

    async def answer(self, receipt: pb.CommandReceipt) -> str:
        """Say it as whoever the receipt names."""
        role = Role.COORDINATOR if receipt.worker == "coordinator" else Role.WORKER
        return await self.say("receipts", role, receipt.worker, receipt)

    async def apply(self, command_id: str, entry_id: str, *workers: str) -> None:
        """Accept a command, and carry it out on these workers."""
        await self.answer(accepted(command_id, entry_id))
        for worker in workers:
            await self.answer(applied(command_id, entry_id, worker))

    async def serve(
        self, failures: Mapping[int, pb.CommandReceipt] | None = None, *, silent: bool = False, stream: str = "commands"
    ) -> None:
        """Judge and apply what comes, until cancelled. The nth (from 1) may fail; `silent` refuses without a word."""
        async with aclosing(tail.follow(self.redis, names.key(self.run_id, stream), "0")) as entries:
            number = 0
            async for entry_id, sealed in entries:
                number += 1
                await self._judge(entry_id, sealed, (failures or {}).get(number), silent)

    async def _judge(self, entry_id: str, sealed: bytes, dictated: pb.CommandReceipt | None, silent: bool) -> None:
        try:
            opened = self._opener.open(sealed, entry_id, await connect.server_ms(self.redis))
        except RefusedError as error:
            if not silent:
                await self.answer(rejected("", entry_id, error.reason, error.detail))
            return
        command_id = opened.message.command_id  # type: ignore[attr-defined]  # both kinds of command have one
        if dictated is None:
            await self.apply(command_id, entry_id, *WORKERS)
            return
        told = pb.CommandReceipt()
        told.CopyFrom(dictated)
        told.command_id, told.entry_id = command_id, entry_id
        if told.status == pb.ReceiptStatus.RECEIPT_FAILED:
            await self.answer(accepted(command_id, entry_id))
        await self.answer(told)


def accepted(command_id: str, entry_id: str, step: int = 108) -> pb.CommandReceipt:
    """The coordinator names the step of the effect."""
    return pb.CommandReceipt(
        version=1,
        command_id=command_id,
        entry_id=entry_id,
        status=pb.ReceiptStatus.RECEIPT_ACCEPTED,
        worker="coordinator",
        step=step,
        round=3,
        world_size=len(WORKERS),
        time_ns=time.time_ns(),
    )


def rejected(command_id: str, entry_id: str, reason: int, detail: str) -> pb.CommandReceipt:
    """The coordinator refuses."""
    return pb.CommandReceipt(
        version=1,
        command_id=command_id,
        entry_id=entry_id,
        status=pb.ReceiptStatus.RECEIPT_REJECTED,
        reason=pb.ReasonCode.Name(reason),
        worker="coordinator",
        detail=detail,
        time_ns=time.time_ns(),
    )


def applied(command_id: str, entry_id: str, worker: str, step: int = 108) -> pb.CommandReceipt:
    """A rank has carried it out."""
    return pb.CommandReceipt(
        version=1,
        command_id=command_id,
        entry_id=entry_id,
        status=pb.ReceiptStatus.RECEIPT_APPLIED,
        worker=worker,
        step=step,
        round=3,
        time_ns=time.time_ns(),
    )


def failed(reason: pb.ReasonCode, detail: str, *, stage: pb.SeedLifecycleStage | None = None) -> pb.CommandReceipt:
    """Worker-1 could not; ids are filled in by whoever says it."""
    return pb.CommandReceipt(
        version=1,
        status=pb.ReceiptStatus.RECEIPT_FAILED,
        reason=reason,
        worker="worker-1",
        step=108,
        detail=detail,
        stage=stage,
        time_ns=time.time_ns(),
    )


def seed_state(seed_id: str, stage: pb.SeedLifecycleStage) -> pb.SeedState:
    """A seed as a heartbeat shows it."""
    return pb.SeedState(seed_id=seed_id, stage=stage, site="head", blueprint_id="lora", alpha=0.25)


async def cancelled(task: asyncio.Task[None]) -> None:
    """End a background task of the test. Python 3.11's wait_for, in the Redis client, may swallow a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.05)


@contextmanager
def listed(
    short_directory: Path, redis_url: str, redis: connect.Redis, patch: pytest.MonkeyPatch, name: str = ""
) -> Iterator[ScriptedRun]:
    """A run that can be found by name alone, and an environment that names no other."""
    for variable in ("ESPER_RUN", "ESPER_REDIS_URL", "ESPER_KEYRING"):
        patch.delenv(variable, raising=False)
    runtime = short_directory / "runtime"
    runtime.mkdir(mode=0o700, exist_ok=True)
    patch.setenv("XDG_RUNTIME_DIR", str(runtime))
    with runs.register(name or f"t{token_hex(3)}", started_ns=time.time_ns(), url=redis_url) as record:
        yield ScriptedRun(record, redis)
