"""arq: a worker that keeps no results and polls without delay; its jobs are pickled, so bytes travel as they are."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from arq.connections import RedisSettings, create_pool
from arq.worker import Worker, func

from bus_arms.peer_pace import Noting, ended, send_paced
from bus_arms.streams import check_handled
from bus_arms.traffic import BATCH, sealed

QUEUE, PACED = "arq:bench", "arq:paced"
POLL_S = 0.001  # its own default is 0.5: nobody would be timed but that


async def consume(url: str, directory: str, what: str, num: int) -> float:
    """Seconds of a worker that ends when the queue is empty."""
    handled = list[bytes]()

    async def handle(context: dict[str, Any], body: bytes) -> None:
        handled.append(body)

    logging.getLogger("arq").setLevel(logging.CRITICAL)
    settings = RedisSettings(unix_socket_path=url.removeprefix("unix://"))
    async with await create_pool(settings, default_queue_name=QUEUE) as pool:
        for body in sealed(directory, what, num):
            await pool.enqueue_job("handle", body)
        worker = Worker(
            [func(handle, name="handle", keep_result=0)],
            queue_name=QUEUE,
            redis_pool=pool,
            burst=True,
            poll_delay=0,
            max_jobs=BATCH,
            handle_signals=False,
        )
        began = time.perf_counter()
        await worker.async_run()
        seconds = time.perf_counter() - began
        check_handled(handled, num)
    return seconds


async def listen(url: str, directory: str, num: int, seconds: float) -> list[float]:
    """Milliseconds of each message, by a worker that looks every millisecond."""
    noting = Noting(url, num)

    async def handle(context: dict[str, Any], body: bytes) -> None:
        await noting.note(body)

    logging.getLogger("arq").setLevel(logging.CRITICAL)
    async with await create_pool(RedisSettings(unix_socket_path=url.removeprefix("unix://"))) as pool:
        await pool.delete(PACED)
        function = func(handle, name="handle", keep_result=0)
        worker = Worker([function], queue_name=PACED, redis_pool=pool, poll_delay=POLL_S, handle_signals=False)
        working = asyncio.create_task(worker.async_run())
        taken = await noting.taken_ms(seconds)
        await ended(working)
    return taken


async def send(url: str, directory: str, num: int, seconds: float) -> None:
    settings = RedisSettings(unix_socket_path=url.removeprefix("unix://"))
    async with await create_pool(settings, default_queue_name=PACED) as pool:
        await send_paced(url, lambda body: pool.enqueue_job("handle", body), num, seconds)
