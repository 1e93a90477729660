"""A worker whose task is cancelled again and again, and begun anew on the same inbox."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from esper.bus import connect, drive, names
from esper.bus.consumer import Pace
from esper.bus.faults import UnavailableError
from esper.bus.inbox import Inbox
from esper.bus.outbox import Outbox
from esper.runtime import logging, process
from esper.runtime.serve import serve
from esper.runtime.settings import Settings
from esper.runtime.timekeeping import kept_right
from tests.faults.history import History
from tests.faults.roles import worker


@dataclass(frozen=True, slots=True)
class Told(worker.Told):
    """Arguments, as JSON."""

    cancels: int = 0
    longest_s: float = 0.05  # between two of them
    seed: int = 0
    block_ms: int = 500
    margin_s: float = drive.MARGIN_S  # how long past its BLOCK a read is given up


async def main(stopping: asyncio.Event) -> None:
    told = Told(**json.loads(sys.argv[1]))
    logging.configure(Settings(log="json"), role="reader", worker=told.name)
    drive.MARGIN_S = told.margin_s
    async with AsyncExitStack() as stack:
        history = stack.enter_context(History(Path(told.directory) / "history", told.name))
        reader = await stack.enter_async_context(connect.client(told.url, None))
        writer = await stack.enter_async_context(connect.client(told.url, told.answer_s))
        await connect.wait_ready(writer, 30.0)
        clock = connect.ServerClock()
        await stack.enter_async_context(kept_right(clock, writer))
        place = (names.key(told.run, "commands"), worker.GROUP, told.name)
        inbox = Inbox(
            *(reader, writer, *place),
            Pace(reclaim_after_ms=told.reclaim_after_ms, count=told.count, block_ms=told.block_ms),
        )
        stack.callback(asyncio.create_task(worker.stop(inbox, stopping)).cancel)
        await work(told, inbox, worker.Worker(told, clock), Outbox(writer), history)


async def work(told: Told, inbox: Inbox, hand: worker.Worker, outbox: Outbox, history: History) -> None:
    """Cancelled at moments of which nothing is known; at last left alone until it is told to stop."""
    chance, number = random.Random(told.seed), 0
    while not inbox.stopping:
        serving = asyncio.create_task(serve(inbox, hand.read, hand.handle, outbox))
        await asyncio.wait([serving], timeout=chance.uniform(0.0, told.longest_s) if number < told.cancels else None)
        while not serving.done():  # Python 3.11's wait_for, in the Redis client, may swallow a cancellation
            serving.cancel()
            await asyncio.wait([serving], timeout=0.1)
        if serving.cancelled():
            history.note("cancelled", number=number)
            number += 1
        elif isinstance(serving.exception(), UnavailableError):
            history.note("began_in_vain")  # it cannot make sure that the group is there
        else:
            serving.result()


if __name__ == "__main__":
    process.run(main)
