"""A coordinator and a controller whose every word the test chooses, over real Redis with real seals."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from esper.bus import connect, names
from esper.bus.publisher import Publisher
from esper.bus.tail import last
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opened, Opener, Sealer


class Script:
    """Publishes what a test decides, and reads what a worker answered."""

    def __init__(self, redis_url: str, run_id: str, directory: Path) -> None:
        self.redis_url, self.run_id = redis_url, run_id
        master = MasterKeyring.new(time.time_ns())
        self.worker_keyring = directory / "worker.json"
        master.derive(run_id, [Role.WORKER]).save(self.worker_keyring)
        self.observer_keyring = directory / "observer.json"
        master.derive(run_id, [Role.OBSERVER]).save(self.observer_keyring)
        keys = master.derive(run_id, [Role.CONTROLLER, Role.OPTIMIZER, Role.COORDINATOR, Role.OBSERVER])
        self._sealers = {
            "commands": Sealer(keys, Role.CONTROLLER, "script"),
            "optimizer": Sealer(keys, Role.OPTIMIZER, "script"),
            "decisions": Sealer(keys, Role.COORDINATOR, "coordinator"),
        }
        self._opener = Opener(keys, guard=None, accept=list(Domain))
        self._sealed: dict[tuple[str, str], tuple[str, bytes]] = {}

    def environment(self, name: str = "worker-0") -> dict[str, str]:
        """What a trainer's runtime needs to know."""
        return {
            "ESPER_RUN": self.run_id,
            "ESPER_REDIS_URL": self.redis_url,
            "ESPER_KEYRING": str(self.worker_keyring),
            "ESPER_NAME": name,
        }

    def publish(self, stream: str, message: Message) -> str:
        """Seal and add; return the entry id."""
        sealed = self._sealers[stream].seal(message)
        entry = asyncio.run(self._add(stream, sealed))
        self._sealed[stream, entry] = (getattr(message, "command_id", ""), sealed)
        return entry

    def copy(self, stream: str, entry: str) -> str:
        """Add the same sealed bytes once more, as anybody may who can write to Redis; return the entry id."""
        known = self._sealed[stream, entry]
        again = asyncio.run(self._add(stream, known[1]))
        self._sealed[stream, again] = known
        return again

    def commit(
        self, round_: int, effective_step: int, *entries: tuple[str, str], snapshot_step: int = 0, **fields: Any
    ) -> None:
        """Decide that these entries, as (stream, id), take effect at a step."""
        refs = [self._ref(stream, entry, snapshot_step) for stream, entry in entries]
        positions: dict[str, Any] = {f"{stream}_position": entry for stream, entry in entries}
        self.publish(
            "decisions",
            pb.BarrierCommit(
                version=1,
                round=round_,
                roster_generation=1,
                effective_step=effective_step,
                commands=refs,
                digest=barrier_digest(effective_step, refs, fields.get("requests", [])),
                **positions,
                **fields,
            ),
        )

    def read(self, stream: str) -> list[Opened]:
        """Everything on a stream, opened."""
        return self._opened(names.key(self.run_id, stream))

    def read_region(self, region: str, stream: str) -> list[Opened]:
        """Everything on a region's stream, opened."""
        return self._opened(names.region_key(self.run_id, region, stream))

    def _opened(self, key: str) -> list[Opened]:
        entries = asyncio.run(self._last(key))
        now_ms = time.time_ns() // 1_000_000
        return [self._opener.open(sealed, entry_id, now_ms) for entry_id, sealed in entries]

    def pending(self, stream: str, group: str) -> int:
        """Entries that a group has been handed and has not acknowledged."""
        return int(asyncio.run(self._pending(stream, group)))

    def _ref(self, stream: str, entry: str, snapshot_step: int) -> pb.CommittedCommand:
        command_id, sealed = self._sealed[stream, entry]
        digest = hashlib.sha256(sealed).digest()
        ref = pb.CommittedCommand(stream=stream, entry_id=entry, command_id=command_id, envelope_digest=digest)
        ref.snapshot_step = snapshot_step
        return ref

    async def _add(self, stream: str, sealed: bytes) -> str:
        async with connect.writer(self.redis_url) as redis:
            return await Publisher(redis).add(names.key(self.run_id, stream), sealed)

    async def _last(self, key: str) -> list[tuple[str, bytes]]:
        async with connect.writer(self.redis_url) as redis:
            return await last(redis, key, 10_000)

    async def _pending(self, stream: str, group: str) -> Any:
        async with connect.writer(self.redis_url) as redis:
            return (await redis.xpending(names.key(self.run_id, stream), group))["pending"]


def germinate() -> pb.AdaptationCommand:
    seed = pb.SeedCommand(
        seed_id="s0",
        operation=pb.SeedOperation.SEED_OP_GERMINATE,
        site="0",
        blueprint_id="lora",
        parameters={"rank": 2},
    )
    return pb.AdaptationCommand(
        version=1,
        command_id="germinate-s0",
        command_type=pb.CommandType.COMMAND_SEED,
        priority=pb.MessagePriority.MESSAGE_PRIORITY_NORMAL,
        seed_command=seed,
    )


def propose(script: Script, round_: int) -> None:
    proposal = pb.BarrierProposal(version=1, round=round_, roster_generation=1, roster=["worker-0"], time_ns=1)
    script.publish("decisions", proposal)


def receipts(script: Script) -> list[pb.CommandReceipt]:
    found = [opened.message for opened in script.read("receipts")]
    return [receipt for receipt in found if isinstance(receipt, pb.CommandReceipt)]
