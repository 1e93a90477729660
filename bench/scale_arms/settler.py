"""One process in the part of many groups: each reads every entry of a stream and settles it."""

from __future__ import annotations

import time

from esper.bus import connect
from esper.bus.group.consumer import Pace
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.names import beside
from esper.bus.publisher import Publisher
from scale_arms import traffic


async def fill(url: str, directory: str, stream: str, num: int, seeds: int) -> int:
    """Add votes of so many seeds, or frames where it is 0; bytes of each."""
    body = traffic.vote(directory, seeds) if seeds else traffic.frame(directory)
    async with connect.writer(url) as writer:
        for start in range(0, num, 256):
            await Publisher(writer).add_many(stream, [body] * min(256, num - start))
    return len(body)


async def settle(url: str, directory: str, stream: str, num_groups: int, together: int) -> list[float]:
    """Each group takes `together` entries at a time, and writes a field of its own with each settlement.

    How many deliveries, and in how many seconds.
    """
    num, began = 0, time.perf_counter()
    async with connect.reader(url) as reader, connect.writer(url) as writer:
        outbox = Outbox(writer)
        for group in range(num_groups):
            inbox = Inbox(reader, writer, stream, f"worker-{group}", "c", Pace(count=together))
            async for batch in inbox.batches(until_idle=True):
                for start in range(0, len(batch), together):
                    num += await settle_one(outbox, stream, group, batch[start : start + together])
    return [num, time.perf_counter() - began]


async def settle_one(outbox: Outbox, stream: str, group: int, deliveries: list) -> int:  # type: ignore[type-arg]
    settlement = Settlement()
    for delivery in deliveries:
        settlement.ack(delivery)
    settlement.put(beside(stream, f"windows:{group}"), {"version": deliveries[-1].entry_id.encode()})
    await outbox.settle(settlement)
    return len(deliveries)
