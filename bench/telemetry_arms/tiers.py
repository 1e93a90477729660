"""Ours: both tiers as their processes wire them, with real inboxes and a real outbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bus_arms.streams import plain
from bus_arms.traffic import RUN, master
from esper.bus import connect
from esper.bus.group.consumer import Pace
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener, Sealer
from esper.narset.global_ import Global
from esper.narset.regional import Regional
from esper.narset.zero_copy import readings
from esper.runtime.aggregator.loop import RECLAIM_AFTER_MS, Aggregator, Pipeline, Target, opening
from telemetry_arms.streams import STOP, check_folded, fill
from telemetry_arms.traffic import GLOBAL, REGION, REGIONAL, TELEMETRY, TOTALS, WINDOWS, sealed

FORMS = (pb.TelemetryFrame, pb.TelemetryPacket, pb.ColumnarFrame)


@asynccontextmanager
async def regional(url: str, directory: str) -> AsyncIterator[Aggregator]:
    async with connect.reader(url) as reader, connect.writer(url) as writer:
        clock = connect.ServerClock()
        await clock.look(writer)
        keys = master(directory).derive(RUN, [Role.REGIONAL])
        opener = Opener(keys, name=REGION, guard=None, accept={Domain.TELEMETRY}, readings=readings())
        inbox = Inbox(reader, writer, TELEMETRY, "regional", "regional-1", Pace(reclaim_after_ms=RECLAIM_AFTER_MS))
        tier = Regional(REGION)
        pipeline = Pipeline(
            opening(opener, clock, *FORMS), tier.on_opened, Sealer(keys, Role.REGIONAL, "regional-1").seal
        )
        yield Aggregator(tier, pipeline, [inbox], Outbox(writer), Target(REGIONAL, WINDOWS))


@asynccontextmanager
async def global_(url: str, directory: str) -> AsyncIterator[Aggregator]:
    async with connect.reader(url) as reader, connect.writer(url) as writer:
        clock = connect.ServerClock()
        await clock.look(writer)
        keys = master(directory).derive(RUN, [Role.GLOBAL])
        opener = Opener(keys, guard=None, accept={Domain.AGGREGATE})
        inbox = Inbox(reader, writer, REGIONAL, "global", "global-1", Pace(reclaim_after_ms=RECLAIM_AFTER_MS))
        tier = Global([REGION])
        read = opening(opener, clock, pb.AggregatedTelemetry)
        pipeline = Pipeline(read, tier.on_opened, Sealer(keys, Role.GLOBAL, "global-1").seal)
        yield Aggregator(tier, pipeline, [inbox], Outbox(writer), Target(GLOBAL, TOTALS))


async def fold(url: str, directory: str, form: str, num: int) -> float:
    """Seconds in which one tier-1 process folds so many packets that wait for it."""
    return await timed_fold(url, directory, form, num, time.perf_counter)


async def fold_alone(url: str, directory: str, form: str, num: int) -> float:
    """The same in seconds of the processor: where others take it away, or Redis is waited for, they don't count."""
    return await timed_fold(url, directory, form, num, time.process_time)


async def timed_fold(url: str, directory: str, form: str, num: int, clock: Callable[[], float]) -> float:
    await fill(url, TELEMETRY, sealed(directory, form, num), group="regional")
    async with regional(url, directory) as aggregator:
        began = clock()
        await aggregator.run(until_idle=True)
        seconds = clock() - began
    await check_folded(url, REGIONAL, num)
    return seconds


async def prepare_global(url: str, directory: str, form: str, num: int) -> int:
    """Regional aggregates of so many packets on the stream; how many."""
    await fold(url, directory, form, num)
    async with plain(url) as redis:
        return int(await redis.xlen(REGIONAL))


async def serve(url: str, directory: str, tier: str) -> float:
    """Run a tier until streams.stop(); the processor seconds that it used of each second."""
    stopping = asyncio.Event()
    async with (regional if tier == "regional" else global_)(url, directory) as aggregator:
        began, began_s = time.perf_counter(), time.process_time()
        watching = asyncio.create_task(told_to_stop(url, stopping))
        await aggregator.run(stopping)
        await watching
        return (time.process_time() - began_s) / (time.perf_counter() - began)


async def told_to_stop(url: str, stopping: asyncio.Event) -> None:
    async with plain(url) as redis:
        await redis.blpop([STOP], timeout=0)
    stopping.set()


async def fold_globally(url: str, directory: str, num: int) -> float:
    """Seconds in which one tier-2 process folds the aggregates of so many packets."""
    await prepare_global(url, directory, "frames", num)
    async with plain(url) as redis:
        await redis.xgroup_create(REGIONAL, "global", id="0", mkstream=True)
    async with global_(url, directory) as aggregator:
        began = time.perf_counter()
        await aggregator.run(until_idle=True)
        seconds = time.perf_counter() - began
    await check_folded(url, GLOBAL, num)
    return seconds
