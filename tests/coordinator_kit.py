"""A run whose coordinator is called by the test, batch by batch, and what its logs then say."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from google.protobuf.message import Message

from esper.bus import names, tail
from esper.bus.connect import Redis, server_ms
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.publisher import Publisher
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener, Sealer
from esper.leyline.succession import Decision
from esper.runtime.coordinator.loop import LOGS, CoordinatorLoop
from esper.workers.coordinator import CoordinatorSettings, coordinator_loop
from tests.bus_kit import drain

S = 1_000_000_000


class KilledError(Exception):
    """The process dies here."""


class DyingOutbox(Outbox):
    """Its process is killed between handling and settling."""

    async def settle(self, settlement: Settlement) -> list[str]:
        raise KilledError


@dataclass
class Run:
    """A run on the suite's server: seals as its processes would, and reads what the coordinator says."""

    run_id: str
    redis: Redis
    redis_reader: Redis
    master: MasterKeyring
    sealers: dict[str, Sealer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        roles = {"commands": Role.CONTROLLER, "optimizer": Role.OPTIMIZER}
        for log in LOGS:
            role = roles.get(log, Role.WORKER)
            self.sealers[log] = Sealer(self.master.derive(self.run_id, [role]), role, f"{role}-of-{log}")

    async def put(self, log: str, *messages: Message) -> list[str]:
        return [await self.put_bytes(log, self.sealers[log].seal(message)) for message in messages]

    async def put_bytes(self, log: str, data: bytes) -> str:
        return await Publisher(self.redis).add(names.key(self.run_id, log), data)

    async def coordinator(self) -> CoordinatorLoop:
        keys = self.master.derive(self.run_id, [Role.COORDINATOR])
        made: CoordinatorLoop = coordinator_loop(keys, CoordinatorSettings(), self.redis_reader, self.redis)
        await made.resume()
        return made

    async def said(self, log: str, domain: Domain) -> list[Message]:
        opener = Opener(self.master.derive(self.run_id, [Role.OBSERVER]), guard=None, accept=[domain])
        entries = await tail.last(self.redis, names.key(self.run_id, log), 1000)
        now_ms = await server_ms(self.redis)
        return [opener.open(body, entry_id, now_ms).message for entry_id, body in entries]

    async def decisions(self) -> list[str]:
        said = await self.said("decisions", Domain.DECISION)
        rounds = [each for each in said if isinstance(each, Decision)]
        return [f"{type(each).__name__.removeprefix('Barrier')} {each.round}" for each in rounds]

    async def receipts(self) -> list[tuple[str, str, str]]:
        said = await self.said("receipts", Domain.RECEIPT)
        receipts = [each for each in said if isinstance(each, pb.CommandReceipt)]
        name = pb.ReasonCode.Name
        return [(each.command_id, each.entry_id, name(each.reason).removeprefix("REASON_")) for each in receipts]


@pytest.fixture
async def run(run_id: str, redis: Redis, redis_reader: Redis) -> Run:
    return Run(run_id, redis, redis_reader, MasterKeyring.new(await server_ms(redis) * 1_000_000 - S))


async def step_until_idle(coordinating: CoordinatorLoop) -> None:
    for inbox in coordinating.inboxes.values():
        await coordinating.step(await drain(inbox))


async def killed_before_settling(coordinating: CoordinatorLoop, log: str = "votes") -> None:
    coordinating.windows.outbox = DyingOutbox(coordinating.outbox.redis)
    with pytest.raises(KilledError):
        await coordinating.step(await drain(coordinating.inboxes[log]))


async def lose_history(run: Run) -> None:
    """What FLUSHALL does, to one run of a server that others use."""
    await run.redis.delete(*[name async for name in run.redis.scan_iter(match=f"esper:{{{run.run_id}}}:*")])


async def notice(coordinating: CoordinatorLoop, log: str) -> None:
    """Read on from a stream whose group is gone."""
    batches = coordinating.inboxes[log].batches(until_idle=True)
    await coordinating.step([delivery async for batch in batches for delivery in batch])


async def stored(run: Run) -> dict[bytes, bytes]:
    """All that Redis holds of the run."""
    keys = [name async for name in run.redis.scan_iter(match=f"esper:{{{run.run_id}}}:*")]
    return {name: await run.redis.execute_command("DUMP", name) for name in keys}


async def fall_back(run: Run, before: dict[bytes, bytes]) -> None:
    """What a crash does to all that was not on disk yet."""
    await lose_history(run)
    for name, dump in before.items():
        await run.redis.execute_command("RESTORE", name, 0, dump)


def proposal(number: int, token: int) -> pb.BarrierProposal:
    return pb.BarrierProposal(version=1, round=number, roster_generation=1, roster=["w"], lease_token=token)


def commit(number: int, token: int, step: int = 9) -> pb.BarrierCommit:
    digest = barrier_digest(step, [], [])
    return pb.BarrierCommit(
        version=1, round=number, roster_generation=1, effective_step=step, digest=digest, lease_token=token
    )


def abort(number: int, token: int) -> pb.BarrierAbort:
    return pb.BarrierAbort(version=1, round=number, roster_generation=1, lease_token=token)


def leads(token: int) -> pb.LeaderAnnouncement:
    return pb.LeaderAnnouncement(version=1, leader="coordinator", lease_token=token)
