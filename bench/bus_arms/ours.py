"""Ours, sealed: serve() with a real inbox and outbox, and the publisher with a real sealer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeAlias

from google.protobuf.message import Message

from bus_arms.streams import CONSUMER, GROUP, check_consumed, check_published, fill, plain
from bus_arms.traffic import BATCH, RUN, SEALED_BY, message, number_and_time, opener, sealed, sealer
from esper.bus import connect, names
from esper.bus.group.consumer import Pace
from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.publisher import Publisher
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opened, Opener
from esper.runtime.serving.loop import serve
from esper.runtime.serving.missing import Missing
from esper.runtime.serving.windows import Windows

Read: TypeAlias = Callable[[Delivery], Opened]
Handle: TypeAlias = Callable[[Opened], Iterable[tuple[str, bytes]]]

RECEIPTS = names.key(RUN, "receipts")
WINDOWS = names.key(RUN, "windows")


class Keeping(Outbox):
    """Settles together with what was noted of replays, as our consumers with a group of their own do."""

    def __init__(self, writer: connect.Redis, guard: ReplayGuard) -> None:
        super().__init__(writer)
        self.windows = Windows(WINDOWS, Outbox(writer), {"bench": guard}, Missing())

    async def settle(self, settlement: Settlement) -> list[str]:
        return await self.windows.settle(settlement)


async def consume(
    url: str, directory: str, what: str, num: int, receipts: bool = False, reclaim_after_ms: int | None = None
) -> float:
    """Seconds to read, open, check for replay, parse, dispatch and acknowledge; `receipts`: and to seal and add two.

    With `reclaim_after_ms` in a group that others share, where the record of what took effect moves along.
    """
    stream, handled = names.key(RUN, what), list[int]()
    handle = with_receipts(directory, handled) if receipts else noting(handled)
    await forget_what_was_seen(url)
    await fill(url, stream, sealed(directory, what, num))
    guard = ReplayGuard() if reclaim_after_ms is None else None
    seconds = await served(url, stream, opener(directory, what, guard), handle, reclaim_after_ms, guard)
    await check_consumed(url, stream, handled, num)
    if receipts:
        await check_published(url, RECEIPTS, 2 * num)
    return seconds


async def forget_what_was_seen(url: str) -> None:
    """The same sealed bytes are put into one slice after another, and must be new to each."""
    async with plain(url) as redis:
        await redis.unlink(WINDOWS)
        async for name in redis.scan_iter(match=f"{names.key(RUN, 'seen:')}*"):
            await redis.unlink(name)


async def served(
    url: str,
    stream: str,
    by: Opener,
    handle: Handle,
    reclaim_after_ms: int | None = None,
    guard: ReplayGuard | None = None,
) -> float:
    """Seconds that serve() takes until nothing is left; what the guard noted is kept with each settlement."""
    async with connect.reader(url) as reader, connect.writer(url) as writer:
        inbox = Inbox(reader, writer, stream, GROUP, CONSUMER, Pace(count=BATCH, reclaim_after_ms=reclaim_after_ms))
        read = await reading(by, writer)
        outbox = Outbox(writer) if guard is None else Keeping(writer, guard)
        await reader.ask(("PING",))  # connected, as the arms beside it are
        began = time.perf_counter()
        await serve(inbox, read, handle, outbox, until_idle=True)
        return time.perf_counter() - began


async def reading(by: Opener, writer: connect.Redis) -> Read:
    """The seam where trust is decided, as our processes wire it."""
    clock = connect.ServerClock()
    await clock.look(writer)

    def read(delivery: Delivery) -> Opened:
        return by.open(delivery.body, delivery.entry_id, clock.now_ms())

    return read


def noting(handled: list[int]) -> Handle:
    """A handler that owes nothing; a `match` on the message, as every handler of ours begins."""

    def handle(opened: Opened) -> Iterable[tuple[str, bytes]]:
        handled.append(number_and_time(opened.message)[0])
        return ()

    return handle


def with_receipts(directory: str, handled: list[int]) -> Handle:
    """Answers each command as coordinator and as rank: accepted, then applied."""
    accepted, applied = pb.ReceiptStatus.RECEIPT_ACCEPTED, pb.ReceiptStatus.RECEIPT_APPLIED
    coordinator, worker = sealer(directory, Role.COORDINATOR), sealer(directory, Role.WORKER)

    def handle(opened: Opened) -> Iterable[tuple[str, bytes]]:
        handled.append(number_and_time(opened.message)[0])
        yield RECEIPTS, coordinator.seal(receipt(opened, accepted))
        yield RECEIPTS, worker.seal(receipt(opened, applied))

    return handle


def receipt(opened: Opened, status: pb.ReceiptStatus) -> Message:
    assert isinstance(opened.message, pb.AdaptationCommand)
    return pb.CommandReceipt(
        version=1,
        command_id=opened.message.command_id,
        status=status,
        worker="worker-0",
        step=40_000,
        round=17,
        entry_id=opened.entry_id,
        time_ns=time.time_ns(),
    )


async def publish(url: str, directory: str, what: str, num: int) -> float:
    """Seconds to build, seal and add, a pipeline of messages at a time."""
    stream, by = names.key(RUN, what), sealer(directory, SEALED_BY[what])
    async with connect.writer(url) as writer:
        await writer.unlink(stream)
        publisher = Publisher(writer)
        began = time.perf_counter()
        for start in range(1, num + 1, BATCH):
            numbers = range(start, min(start + BATCH, num + 1))
            await publisher.add_many(stream, [by.seal(message(what, number, time.time_ns())) for number in numbers])
        seconds = time.perf_counter() - began
    await check_published(url, stream, num)
    return seconds


async def size(url: str, directory: str, what: str) -> int:
    """Bytes of one sealed message."""
    return len(sealed(directory, what, 1)[0])
