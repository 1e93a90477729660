"""One consumer on a stream with a long past: reads, settlements, and a pass over what a dead one left pending."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bus_arms.pace import NUMBER_AND_TIME
from bus_arms.streams import ADD_SAME, GROUP, SliceError, plain
from bus_arms.traffic import BATCH, RUN
from esper.bus import connect, names
from esper.bus.group.consumer import Pace
from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement

STREAM, DONE = names.key(RUN, "votes"), names.key(RUN, "backlog-done")
BODY = bytes(226)
NUM_AT_ONCE = 5_000
NUM_NEW = 100 * BATCH
RECLAIM_AFTER_MS = 1_000
FEED_EVERY_S = 0.01
PATIENCE_S = 240.0
TAKE = "redis.call('XREADGROUP', 'GROUP', ARGV[1], 'dead-1', 'COUNT', ARGV[2], 'STREAMS', KEYS[1], '>')"


@dataclass(slots=True)
class Found:
    """Milliseconds of each call, memory in MiB."""

    read: list[float] = field(default_factory=list)
    settle: list[float] = field(default_factory=list)
    new_waited: list[float] = field(default_factory=list)
    num: int = 0
    seconds: float = 0.0
    memory: list[float] = field(default_factory=list)


async def prepare(url: str, directory: str, num: int) -> None:
    """So many entries, all of them pending for a consumer that is no more."""
    async with plain(url) as redis:
        await redis.unlink(STREAM, DONE)
        await redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        for start in range(0, num, NUM_AT_ONCE):
            await redis.eval(ADD_SAME, 1, STREAM, str(min(NUM_AT_ONCE, num - start)), BODY)
            await redis.eval(TAKE, 1, STREAM, GROUP, str(NUM_AT_ONCE))
        pending = (await redis.xpending(STREAM, GROUP))["pending"]
        if pending != num:
            raise SliceError(f"{pending} entries are pending, not {num}")
    await asyncio.sleep(2 * RECLAIM_AFTER_MS / 1000)  # by then all of them may be taken over


async def read_new(url: str, directory: str) -> dict[str, object]:
    """Read and settle new entries behind those."""
    async with plain(url) as redis:
        for _ in range(NUM_NEW // NUM_AT_ONCE + 1):
            await redis.eval(ADD_SAME, 1, STREAM, str(NUM_AT_ONCE), BODY)
    found = await consumed(url, "reader-1", until=None)
    return asdict(found)


async def reclaim(url: str, directory: str, num: int) -> dict[str, object]:
    """Take over and settle all that the dead consumer left, while new entries come in."""
    found = await consumed(url, "heir-1", until=num)
    async with plain(url) as redis:
        await redis.set(DONE, 1)
        left = await redis.xpending_range(STREAM, GROUP, "-", "+", 1, "dead-1")
    if left:
        raise SliceError("left entries of the dead consumer pending")
    return asdict(found)


async def consumed(url: str, consumer: str, until: int | None) -> Found:
    """Every call timed; ends when idle, or with so many entries taken over."""
    found = Found(memory=[resident_mib()])
    async with connect.reader(url) as reader, connect.writer(url) as writer:
        after_ms = None if until is None else RECLAIM_AFTER_MS
        inbox = Inbox(reader, writer, STREAM, GROUP, consumer, Pace(count=BATCH, reclaim_after_ms=after_ms))
        outbox = Outbox(writer)
        await inbox.open()
        began = before = time.perf_counter()
        async for batch in inbox.batches(until_idle=until is None):
            found.read.append(milliseconds_since(before))
            before = time.perf_counter()
            await outbox.settle(acknowledged(batch))
            found.settle.append(milliseconds_since(before))
            note(batch, found)
            if until is not None and (found.num >= until or time.perf_counter() - began > PATIENCE_S):
                break
            before = time.perf_counter()
        found.seconds = time.perf_counter() - began
    found.memory.append(resident_mib())
    return found


def acknowledged(batch: list[Delivery]) -> Settlement:
    settlement = Settlement()
    for delivery in batch:
        settlement.ack(delivery)
    return settlement


def note(batch: list[Delivery], found: Found) -> None:
    """Count what was taken over; what was new tells how long it has waited."""
    now_ns = time.monotonic_ns()
    for delivery in batch:
        number, due_ns = NUMBER_AND_TIME.unpack_from(delivery.body)
        if number:
            found.new_waited.append((now_ns - due_ns) / 1e6)
        else:
            found.num += 1


async def feed(url: str, directory: str) -> int:
    """Add new entries until the pass is done; how many."""
    number, ends = 0, time.monotonic() + PATIENCE_S
    async with plain(url) as redis:
        while time.monotonic() < ends and not await redis.exists(DONE):
            number += 1
            body = NUMBER_AND_TIME.pack(number, time.monotonic_ns()).ljust(len(BODY), b"\0")
            await redis.xadd(STREAM, {b"m": body})
            await asyncio.sleep(FEED_EVERY_S)
    return number


async def forget(url: str, directory: str) -> None:
    async with plain(url) as redis:
        await redis.unlink(STREAM, DONE)


def milliseconds_since(before: float) -> float:
    return (time.perf_counter() - before) * 1e3


def resident_mib() -> float:
    """Memory of this process."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024
