"""The parts of a runtime beside a trainer, put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from esper.bus import names, tail
from esper.bus.connect import Redis, ServerClock, reader, wait_ready, writer
from esper.bus.durability import Wanted, admit
from esper.bus.group.groups import group_of
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.publisher import Publisher
from esper.leyline.entries import entry_order
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Sealer
from esper.runtime.access import Access
from esper.runtime.beside.following import Following
from esper.runtime.beside.lanes import Lanes
from esper.runtime.beside.loop import Beside, windows_key
from esper.runtime.beside.namesake import Newcomer, require_alone
from esper.runtime.beside.orders import Orders
from esper.runtime.beside.packets import Origin
from esper.runtime.beside.recall import Recaller
from esper.runtime.serving.clock_skew import DatedOpener
from esper.runtime.serving.missing import Missing
from esper.runtime.serving.windows import Windows

LOGS = {"commands": Domain.COMMAND, "optimizer": Domain.OPTIMIZER, "decisions": Domain.DECISION}
PATIENCE_S = 5.0
"""For a Redis that is not there yet: less than a trainer waits for its runtime, which is to say what is missing."""
WRITE_PATIENCE_S = 15.0
"""For one that takes nothing, as where its disk is full or another one is to take over: both are less than that."""


@asynccontextmanager
async def assembled(
    access: Access,
    origin: Origin,
    lanes: Lanes,
    *,
    newcomer: Newcomer | None = None,
    decided: str = "",
    waits: bool = False,
    durability: Wanted = "fast",
) -> AsyncIterator[Beside]:
    """Connect, check the server, load what this worker had seen of each log; hang up after the block. `newcomer`: its
    trainer, where that has just begun. SettingError where a worker is in the run beside which it can't be.

    `decided`: the newest decision when its trainer began, where that was told; else what Redis says. `waits`: the logs
    are read once the trainer says that it begins.
    """
    name, redis, readers = origin.source, writer(access.redis_url), {log: reader(access.redis_url) for log in LOGS}
    async with _hung_up(redis, *readers.values()):
        clock = ServerClock(names.key(access.run_id, "decisions"))
        await wait_ready(redis, PATIENCE_S)
        await admit(redis, durability)
        await clock.look(redis)
        if newcomer is not None:
            beats = _opener(access, clock, name, Domain.HEARTBEAT, None)
            await require_alone(redis, access.run_id, newcomer, beats, clock.now_ms())
        guards = {log: ReplayGuard() for log in LOGS}
        windows = await _taken_over(redis, access.run_id, name, guards, is_awaited=newcomer is not None)
        decided = decided or await _past(redis, access.run_id, name, fresh=newcomer is not None)
        orders = Orders(past=entry_order(decided), worker=name)
        recaller = await _caught_up(redis, access, clock, orders)
        sealer = Sealer(access.keyring, Role.WORKER, name, clock_ns=clock.now_ns)
        openers = {log: _opener(access, clock, name, domain, guards[log]) for log, domain in LOGS.items()}
        yield Beside(
            run_id=access.run_id,
            origin=origin,
            lanes=lanes,
            logs={log: Inbox(readers[log], redis, names.key(access.run_id, log), name, name) for log in LOGS},
            following=Following(access.run_id, name, openers, sealer.seal, clock.now_ms, orders),
            windows=windows,
            outbox=windows.outbox,
            publisher=Publisher(redis),
            sealer=sealer,
            clock=clock,
            recaller=recaller if waits else None,
            decided=decided,
        )


@asynccontextmanager
async def _hung_up(*clients: Redis) -> AsyncIterator[None]:
    """Close them after the block, all at once: a server that is silent is waited for at each."""
    try:
        yield
    finally:
        await asyncio.gather(*(each.aclose() for each in clients))


def _opener(access: Access, clock: ServerClock, name: str, domain: Domain, guard: ReplayGuard | None) -> DatedOpener:
    return DatedOpener(access.keyring, clock, name=name, guard=guard, accept=[domain], carries_out=True)


async def _taken_over(
    redis: Redis, run_id: str, name: str, guards: Mapping[str, ReplayGuard], *, is_awaited: bool
) -> Windows:
    """What this worker had seen of each log, and who writes that down from now on; `is_awaited`: by its trainer."""
    outbox = Outbox(redis)
    windows = Windows(windows_key(run_id, name), outbox, guards, Missing())
    if is_awaited:
        windows.outbox = Outbox(redis, WRITE_PATIENCE_S)
    await windows.take_over()
    windows.outbox = outbox
    return windows


async def _caught_up(redis: Redis, access: Access, clock: ServerClock, orders: Orders) -> Recaller:
    """Who reads the logs a second time; by it these orders know what an earlier runtime of their worker knew."""
    name = orders.worker
    again = {log: _opener(access, clock, name, domain, None) for log, domain in LOGS.items()}
    recaller = Recaller(redis, access.run_id, name, again, clock)
    await recaller.take_up(orders, *await _read_before(redis, names.key(access.run_id, "decisions"), name))
    return recaller


async def _read_before(redis: Redis, stream: str, group: str) -> tuple[str, str]:
    """The oldest entry that an earlier runtime has left pending, if any, and the newest that it was given."""
    facts = await group_of(redis, stream, group)
    if facts is None:
        return "", ""
    rows = await redis.ask(("XPENDING", stream, group, "-", "+", "1"))
    return rows[0][0].decode() if rows else "", facts["last-delivered-id"].decode()


async def _past(redis: Redis, run_id: str, name: str, *, fresh: bool) -> str:
    """The newest decision when the trainer began; on record, as its runtime may be started anew before it read them."""
    began = names.key(run_id, "began")
    if fresh:
        await redis.execute_command("HSET", began, name, await tail.newest_id(redis, names.key(run_id, "decisions")))
    known: bytes | None = await redis.execute_command("HGET", began, name)
    return (known or b"").decode()
