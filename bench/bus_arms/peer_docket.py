"""docket: a worker of fifty tasks that keeps no records and looks every 5 ms; arguments are pickled: bytes travel."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta

from docket import Docket, Worker

from bus_arms.peer_pace import Noting, ended, send_paced
from bus_arms.streams import check_handled
from bus_arms.traffic import sealed

CONCURRENCY = 50  # with 100 two or three of 500 tasks stay unrun until they are redelivered, minutes later
PATIENCE_S = 60

_handled: list[bytes] = []
_noting: list[Noting] = []


async def handle(body: bytes) -> None:
    _handled.append(body)


async def consume(url: str, directory: str, what: str, num: int) -> float:
    """Seconds of a worker that ends when nothing is left."""
    _handled.clear()
    logging.getLogger("docket").setLevel(logging.CRITICAL)
    async with Docket(name="bench", url=url, execution_ttl=timedelta(0)) as docket:
        await docket.clear()
        docket.register(handle)
        for body in sealed(directory, what, num):
            await docket.add(handle)(body)
        async with Worker(
            docket,
            concurrency=CONCURRENCY,
            minimum_check_interval=timedelta(milliseconds=5),
            schedule_automatic_tasks=False,
        ) as worker:
            began = time.perf_counter()
            async with asyncio.timeout(PATIENCE_S):
                await worker.run_until_finished()
            seconds = time.perf_counter() - began
    check_handled(_handled, num)
    return seconds


async def noted(body: bytes) -> None:
    await _noting[-1].note(body)


async def listen(url: str, directory: str, num: int, seconds: float) -> list[float]:
    """Milliseconds of each message."""
    _noting.append(Noting(url, num))
    logging.getLogger("docket").setLevel(logging.CRITICAL)
    async with Docket(name="paced", url=url, execution_ttl=timedelta(0)) as docket:
        docket.register(noted)
        async with Worker(
            docket,
            concurrency=CONCURRENCY,
            minimum_check_interval=timedelta(milliseconds=5),
            schedule_automatic_tasks=False,
        ) as worker:
            working = asyncio.create_task(worker.run_forever())
            taken = await _noting[-1].taken_ms(seconds)
            await ended(working)
    return taken


async def send(url: str, directory: str, num: int, seconds: float) -> None:
    async with Docket(name="paced", url=url, execution_ttl=timedelta(0)) as docket:
        await docket.clear()
        docket.register(noted)
        await send_paced(url, lambda body: docket.add(noted)(body), num, seconds)
