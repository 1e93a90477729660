"""One process that writes what a worker writes, an entry a round trip, for as long as it is told to."""

from __future__ import annotations

import time

import redis.asyncio

from esper.bus import connect
from esper.bus.group.delivery import FIELD
from esper.bus.publisher import Publisher
from scale_arms import traffic

BODIES = {"telemetry": traffic.frame, "again": traffic.frame, "bare": traffic.frame, "votes": traffic.vote}


async def publish(url: str, directory: str, what: str, stream: str, seconds: float) -> list[float]:
    """How many entries, and in how many seconds."""
    body = BODIES[what](directory)
    if what == "bare":
        return await publish_bare(url, stream, body, seconds)
    async with connect.writer(url) as writer:
        publisher, num = Publisher(writer), 0
        await publisher.add(stream, body)  # connected
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            await publisher.add(stream, body)
            num += 1
        return [num, time.perf_counter() - began]


async def publish_bare(url: str, stream: str, body: bytes, seconds: float) -> list[float]:
    """The same with the library alone."""
    client = redis.asyncio.Redis.from_url(url, protocol=2)
    await client.xadd(stream, {FIELD: body})
    num, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        await client.xadd(stream, {FIELD: body})
        num += 1
    elapsed = time.perf_counter() - began
    await client.aclose()
    return [num, elapsed]
