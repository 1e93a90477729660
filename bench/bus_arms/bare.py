"""The least that Python can do: the client's own loop, and one HMAC a message."""

from __future__ import annotations

import hmac
import time
from typing import Any

from redis.asyncio import Redis

from bus_arms.streams import CONSUMER, GROUP, check_consumed, check_published, fill, plain
from bus_arms.traffic import BATCH, FULL_READ, KEY, sealed


async def consume(url: str, directory: str, what: str, num: int, receipts: bool = False) -> float:
    """Seconds to read, compute one HMAC a message, and acknowledge; `receipts`: and to add two, with one HMAC each."""
    stream, handled = f"bare:{what}", list[bytes]()
    await fill(url, stream, sealed(directory, what, num))
    async with plain(url) as redis:
        await redis.get("connected")
        loop = answered if receipts else looped
        began = time.perf_counter()
        await loop(redis, stream, handled)
        seconds = time.perf_counter() - began
    await check_consumed(url, stream, handled, num)
    if receipts:
        async with plain(url) as redis:
            await redis.unlink(f"{stream}:receipts")
    return seconds


async def looped(redis: Redis, stream: str, handled: list[bytes]) -> None:
    while entries := await taken(redis, stream):
        for _, fields in entries:
            hmac.digest(KEY, fields[b"m"], "sha256")
        ids = [entry_id for entry_id, _ in entries]
        handled += ids
        await redis.xack(stream, GROUP, *ids)


async def answered(redis: Redis, stream: str, handled: list[bytes]) -> None:
    """With two answers a message, in one transaction with the acknowledgement."""
    while entries := await taken(redis, stream):
        pipe = redis.pipeline(transaction=True)
        for _, fields in entries:
            hmac.digest(KEY, fields[b"m"], "sha256")
            for _ in range(2):
                pipe.xadd(f"{stream}:receipts", {b"m": hmac.digest(KEY, fields[b"m"], "sha256") + fields[b"m"][:150]})
        ids = [entry_id for entry_id, _ in entries]
        handled += ids
        pipe.xack(stream, GROUP, *ids)
        await pipe.execute()


async def taken(redis: Redis, stream: str) -> list[Any]:
    reply: Any = await redis.xreadgroup(GROUP, CONSUMER, {stream: ">"}, count=FULL_READ)
    return list(reply[0][1]) if reply else []


async def publish(url: str, directory: str, what: str, num: int) -> float:
    """Seconds to compute one HMAC a message and add it, a pipeline of messages at a time."""
    stream, bodies = f"bare:{what}", sealed(directory, what, num)
    async with plain(url) as redis:
        await redis.unlink(stream)
        began = time.perf_counter()
        for start in range(0, num, BATCH):
            pipe = redis.pipeline(transaction=False)
            for body in bodies[start : start + BATCH]:
                hmac.digest(KEY, body, "sha256")
                pipe.xadd(stream, {b"m": body})
            await pipe.execute()
        seconds = time.perf_counter() - began
    await check_published(url, stream, num)
    return seconds
