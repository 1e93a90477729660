"""FastStream: a subscriber of batches in a group, with base64: it makes JSON of a batch."""

from __future__ import annotations

import asyncio
import base64
import logging
import time

from faststream.redis import RedisBroker, StreamSub
from redis.asyncio import Redis

from bus_arms.peer_pace import Noting, send_paced
from bus_arms.streams import CONSUMER, GROUP, check_consumed
from bus_arms.traffic import BATCH, sealed

STREAM, PACED = "faststream", "faststream:paced"


async def consume(url: str, directory: str, what: str, num: int) -> float:
    """Seconds from the start of the subscriber until all is acknowledged."""
    handled, done = list[str](), asyncio.Event()

    async def handle(bodies: list[str]) -> None:
        handled.extend(bodies)
        if len(handled) == num:
            done.set()

    broker = RedisBroker(url, logger=None, log_level=logging.CRITICAL)
    async with broker, Redis.from_url(url) as redis:
        await fill(redis, broker, sealed(directory, what, num))
        source = StreamSub(
            STREAM, group=GROUP, consumer=CONSUMER, last_id=">", batch=True, max_records=BATCH, polling_interval=10
        )
        broker.subscriber(stream=source)(handle)
        began = time.perf_counter()
        await broker.start()
        await done.wait()
        await settled(redis)
        seconds = time.perf_counter() - began
    await check_consumed(url, STREAM, handled, num)
    return seconds


async def fill(redis: Redis, broker: RedisBroker, bodies: list[bytes]) -> None:
    """By its own publisher: its messages have a header of their own."""
    await redis.unlink(STREAM)
    await redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    await broker.connect()
    for body in bodies:
        await broker.publish(base64.b64encode(body).decode(), stream=STREAM)


async def settled(redis: Redis) -> None:
    """The last acknowledgement follows the last handler."""
    while (await redis.xpending(STREAM, GROUP))["pending"]:
        await asyncio.sleep(0)


async def listen(url: str, directory: str, num: int, seconds: float) -> list[float]:
    """Milliseconds of each message, which come one by one."""
    noting = Noting(url, num)

    async def handle(body: str) -> None:
        await noting.note(base64.b64decode(body))

    async with Redis.from_url(url) as redis:
        await redis.unlink(PACED)
        await redis.xgroup_create(PACED, GROUP, id="0", mkstream=True)
    broker = RedisBroker(url, logger=None, log_level=logging.CRITICAL)
    async with broker:
        source = StreamSub(PACED, group=GROUP, consumer=CONSUMER, last_id=">", polling_interval=10)
        broker.subscriber(stream=source)(handle)
        await broker.start()
        return await noting.taken_ms(seconds)


async def send(url: str, directory: str, num: int, seconds: float) -> None:
    async with RedisBroker(url, logger=None, log_level=logging.CRITICAL) as broker:
        await broker.connect()
        await send_paced(url, lambda body: broker.publish(base64.b64encode(body).decode(), stream=PACED), num, seconds)
