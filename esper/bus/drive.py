"""Drives a protocol against a server: the only place that awaits for one."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from esper.bus.connect import Redis
from esper.bus.protocol import Pause, Steps
from esper.errors import BusError

MARGIN_S = 5.0  # a reader waits this much longer than its BLOCK, which the server may overrun

T = TypeVar("T")


async def drive(steps: Steps[T], reader: Redis, writer: Redis, stopping: asyncio.Event) -> T:
    """Carry out what the protocol asks for until it returns. Cancelled, it is closed."""
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, Pause):
                    reply = await _paused(step.seconds, stopping)
                elif step.block_ms is None:
                    [reply] = await writer.ask_all((step.words,))
                else:
                    [reply] = await reader.ask_all((step.words,), step.block_ms / 1000 + MARGIN_S)
            except BusError as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as ended:
        result: T = ended.value
        return result
    finally:
        steps.close()


async def _paused(seconds: float, stopping: asyncio.Event) -> bool:
    """Wait; whether a stop cut it short."""
    try:
        async with asyncio.timeout(seconds):
            return await stopping.wait()
    except TimeoutError:
        return False
