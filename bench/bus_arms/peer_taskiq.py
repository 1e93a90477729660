"""taskiq-redis: the stream broker, a hundred tasks at a time; base64, because its messages are JSON."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

from redis.asyncio import Redis
from taskiq.api import run_receiver_task
from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamBroker

from bus_arms.peer_pace import Noting, send_paced
from bus_arms.streams import CONSUMER, GROUP, check_consumed
from bus_arms.traffic import BATCH, sealed

STREAM, PACED = "taskiq", "taskiq:paced"


async def consume(url: str, directory: str, what: str, num: int) -> float:
    """Seconds from the start of the receiver until all is acknowledged."""
    handled, done = list[str](), asyncio.Event()

    async def handle(body: str) -> None:
        handled.append(body)
        if len(handled) == num:
            done.set()

    async with Redis.from_url(url) as redis:
        await redis.unlink(STREAM)
    broker = RedisStreamBroker(
        url, STREAM, consumer_group_name=GROUP, consumer_name=CONSUMER, consumer_id="0", xread_count=BATCH
    )
    task = broker.register_task(handle, task_name="handle")
    await broker.startup()
    for body in sealed(directory, what, num):
        await task.kiq(base64.b64encode(body).decode())
    began = time.perf_counter()
    receiver = asyncio.create_task(run_receiver_task(broker, max_async_tasks=100, max_prefetch=BATCH))
    await done.wait()
    await settled(url)
    seconds = time.perf_counter() - began
    receiver.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await receiver
    await broker.shutdown()
    await check_consumed(url, STREAM, handled, num)
    return seconds


async def settled(url: str) -> None:
    """The last acknowledgement follows the last task."""
    async with Redis.from_url(url) as redis:
        while (await redis.xpending(STREAM, GROUP))["pending"]:
            await asyncio.sleep(0)


async def listen(url: str, directory: str, num: int, seconds: float) -> list[float]:
    """Milliseconds of each message."""
    noting = Noting(url, num)

    async def handle(body: str) -> None:
        await noting.note(base64.b64decode(body))

    async with Redis.from_url(url) as redis:
        await redis.unlink(PACED)
    broker = paced_broker(url)
    broker.register_task(handle, task_name="handle")
    await broker.startup()
    finished = asyncio.Event()  # a cancelled receiver may wait for ever
    with ThreadPoolExecutor() as executor:
        receiver = Receiver(broker, executor, max_async_tasks=100, max_prefetch=BATCH)
        receiving = asyncio.create_task(receiver.listen(finished))
        taken = await noting.taken_ms(seconds)
        finished.set()
        await receiving
    await broker.shutdown()
    return taken


async def send(url: str, directory: str, num: int, seconds: float) -> None:
    async def handle(body: str) -> None:
        """Named for its messages alone: the process that listens handles them."""

    broker = paced_broker(url)
    task = broker.register_task(handle, task_name="handle")
    await broker.startup()
    await send_paced(url, lambda body: task.kiq(base64.b64encode(body).decode()), num, seconds)
    await broker.shutdown()


def paced_broker(url: str) -> RedisStreamBroker:
    return RedisStreamBroker(
        url, PACED, consumer_group_name=GROUP, consumer_name=CONSUMER, consumer_id="0", xread_count=BATCH
    )
