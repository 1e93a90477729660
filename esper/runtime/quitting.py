"""How a process that is told to stop leaves work for which Redis would have to answer, and does not."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable
from typing import TypeVar

import structlog

from esper.bus.client.deadline import in_time
from esper.bus.connect import Redis
from esper.bus.group.inbox import LAST_READ_S, Inbox
from esper.errors import BusError
from esper.runtime.ending import end

ANSWER_S = 0.5
"""With the second before it, and the goodbyes behind it, less than the three of a SIGTERM."""

T = TypeVar("T")

log = structlog.get_logger()


async def unless_silent(
    work: Coroutine[object, object, T], stopping: asyncio.Event, redis: Redis, key: str, inboxes: Collection[Inbox] = ()
) -> T | None:
    """Do this work, which is to end within a second of `stopping`. None: it was given up, as Redis does not answer.

    Of a Cluster those nodes are asked that hold the key and what the inboxes read. What is in hand then was not
    acknowledged, and stays pending for whoever comes next: as after a kill.
    """
    task, told = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait([task, told], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([task], timeout=LAST_READ_S)
        if not task.done() and (why := await silence(redis, [key, *(each.source.stream for each in inboxes)])):
            log.warning("work.left", why=why)
            return None
        return await task
    finally:
        await end([task, told])
        for inbox in inboxes:
            await inbox.give_up()


async def silence(redis: Redis, keys: Iterable[str]) -> str:
    """Why it can't be worked with; empty where whoever holds these keys answers."""
    try:
        for key in keys:
            await in_time(ANSWER_S, redis.ask_beside(key, ("PING",)))
    except TimeoutError:
        return f"Redis does not answer within {ANSWER_S:g} s"
    except BusError as error:
        return str(error)
    return ""
