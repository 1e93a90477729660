"""Drives a protocol against a server: the only place that awaits for one."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from esper.bus.connect import Redis
from esper.bus.deadline import in_time
from esper.bus.faults import LostError
from esper.bus.protocol import Ask, Pause, Steps
from esper.errors import BusError

MARGIN_S = 5.0  # a reader waits this much longer than its BLOCK, which the server may overrun

T = TypeVar("T")


async def drive(steps: Steps[T], reader: Redis, writer: Redis, stopping: asyncio.Event) -> T:
    """Carry out what the protocol asks for until it returns. Cancelled, it is closed."""
    try:
        step = next(steps)
        while True:
            try:
                reply = await _reply(step, reader, writer, stopping)
            except BusError as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as ended:
        result: T = ended.value
        return result
    finally:
        steps.close()


async def _reply(step: Ask | Pause, reader: Redis, writer: Redis, stopping: asyncio.Event) -> Any:
    if isinstance(step, Pause):
        return await _paused(step.seconds, stopping)
    if step.block_ms is None:
        return await writer.ask(step.words)
    try:
        return await in_time(step.block_ms / 1000 + MARGIN_S, reader.ask(step.words))
    except TimeoutError as error:
        raise LostError("no answer to a read") from error


async def _paused(seconds: float, stopping: asyncio.Event) -> bool:
    """Wait; whether a stop cut it short."""
    try:
        async with asyncio.timeout(seconds):
            return await stopping.wait()
    except TimeoutError:
        return False
