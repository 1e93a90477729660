"""One of a group that carries out each command once: the effect is a receipt, written with the acknowledgement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from esper.bus import connect, names
from esper.bus.group.consumer import Pace
from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opened, Opener, Sealer
from esper.runtime import process
from esper.runtime.serving.loop import serve
from esper.runtime.timekeeping import kept_right
from tests.faults.history import History
from tests.faults.roles import arguments

GROUP = "workers"
Kind = TypeVar("Kind", bound=Inbox)


@dataclass(frozen=True, slots=True)
class Told(arguments.Told):
    """`name` is another one for each incarnation."""

    reclaim_after_ms: int = 500
    count: int = 64
    block_ms: int = 500
    work_s: float = 0.0  # for each command
    answer_s: float = 10.0


class Noted(Inbox):
    """Writes down what it is about to hand back."""

    history: History

    async def release(self) -> int:
        rows: Any = await self.writer.ask(("XPENDING", *self.source[:2], "-", "+", "10000", self.source.consumer))
        self.history.note("releasing", entry_ids=[row[0].decode() for row in rows])
        return await super().release()


class Worker:
    """Opens commands and answers each with a receipt. Knows nothing of repeats."""

    def __init__(self, told: Told, clock: connect.ServerClock) -> None:
        self.told, self.clock = told, clock
        keys = told.keys(Role.WORKER)
        self.opener = Opener(keys, name=told.name, guard=None, accept=[Domain.COMMAND])
        self.sealer = Sealer(keys, Role.WORKER, told.name)
        self.receipts = names.key(told.run, "receipts")

    def read(self, delivery: Delivery) -> Opened:
        return self.opener.open(delivery.body, delivery.entry_id, self.clock.now_ms())

    def handle(self, opened: Opened) -> Iterator[tuple[str, bytes]]:
        """Blocks, as a handler that computes does."""
        time.sleep(self.told.work_s)
        assert isinstance(opened.message, pb.AdaptationCommand)
        receipt = pb.CommandReceipt(
            version=1,
            command_id=opened.message.command_id,
            status=pb.ReceiptStatus.RECEIPT_APPLIED,
            worker=self.told.name,
            entry_id=opened.entry_id,
            time_ns=time.time_ns(),
        )
        yield self.receipts, self.sealer.seal(receipt)


@asynccontextmanager
async def hands(
    told: Told, kind: type[Kind], stopping: asyncio.Event
) -> AsyncIterator[tuple[Kind, Outbox, connect.ServerClock]]:
    """What a member of the group works with. Told to stop, its inbox does."""
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(connect.client(told.url, None))
        writer = await stack.enter_async_context(connect.client(told.url, told.answer_s))
        await connect.wait_ready(writer, 30.0)
        clock = connect.ServerClock()
        await stack.enter_async_context(kept_right(clock, writer))
        pace = Pace(reclaim_after_ms=told.reclaim_after_ms, count=told.count, block_ms=told.block_ms)
        inbox = kind(reader, writer, names.key(told.run, "commands"), GROUP, told.name, pace)
        stack.callback(asyncio.create_task(stop(inbox, stopping)).cancel)
        yield inbox, Outbox(writer), clock


async def main(stopping: asyncio.Event) -> None:
    told = Told.begin("worker")
    with told.history() as history:
        async with hands(told, Noted, stopping) as (inbox, outbox, clock):
            inbox.history = history
            worker = Worker(told, clock)
            await serve(inbox, worker.read, worker.handle, outbox)


async def stop(inbox: Inbox, stopping: asyncio.Event) -> None:
    await stopping.wait()
    inbox.stop()


if __name__ == "__main__":
    process.run(main)
