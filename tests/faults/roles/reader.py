"""A worker whose task is cancelled again and again, and begun anew on the same inbox."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from esper.bus import drive
from esper.bus.faults import UnavailableError
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.runtime import process
from esper.runtime.serving.loop import serve
from tests.faults.history import History
from tests.faults.roles import worker


@dataclass(frozen=True, slots=True)
class Told(worker.Told):
    """When it is cancelled, and how often."""

    cancels: int = 0
    longest_s: float = 0.05  # between two of them
    seed: int = 0
    margin_s: float = drive.MARGIN_S  # how long past its BLOCK a read is given up


async def main(stopping: asyncio.Event) -> None:
    told = Told.begin("reader")
    drive.MARGIN_S = told.margin_s
    with told.history() as history:
        async with worker.hands(told, Inbox, stopping) as (inbox, outbox, clock):
            await work(told, inbox, worker.Worker(told, clock), outbox, history)


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
