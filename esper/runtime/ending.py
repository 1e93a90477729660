"""How work ends: that of tasks whose owner is done, and of a process whose parent is gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import structlog

T = TypeVar("T")

log = structlog.get_logger()

AGAIN_S = 0.5
ORPHAN_S = 3.0
"""From the death of a parent: what its child has yet to say goes out within this, or not at all."""
LOOK_S = 0.25


async def end(tasks: Iterable[asyncio.Task[Any]], again_s: float = AGAIN_S) -> None:
    """Cancel until it takes. A library may swallow a cancellation that comes together with the reply it waits for.

    Errors of the tasks are logged: whoever calls this has one to raise already, or is done.
    """
    tasks = list(tasks)
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=again_s)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("task.failed", task=task.get_name(), why=str(error))


@asynccontextmanager
async def meanwhile(*works: Coroutine[Any, Any, object]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """These go on while the block runs, and end with it. Logs what one of them failed of, unless the block fails."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield tasks
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                log.error("background.failed", task=task.get_name(), why=repr(error))
    finally:
        await end(tasks)


def raise_first(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Raise what ended one of them, if any has ended."""
    for task in tasks:
        if task.done():
            task.result()


async def along(work: Coroutine[object, object, T], beside: Collection[asyncio.Task[Any]]) -> T:
    """Do this work; the first of the tasks beside it to end ends the work too, and its error is raised here."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task, *beside], return_when=asyncio.FIRST_COMPLETED)
        raise_first(beside)
        return await task
    finally:
        await end([task])


async def first_of(*works: Coroutine[object, object, object]) -> None:
    """Until one of them ends; then the others do. Raises what that one raised."""
    async with meanwhile(*works) as tasks:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        raise_first(tasks)


async def orphaned(parent: int, grace_s: float = ORPHAN_S) -> None:
    """Return once this process has outlived by `grace_s` seconds the one that started it, which may be gone already."""
    while os.getppid() == parent:
        await asyncio.sleep(LOOK_S)
    await asyncio.sleep(grace_s)
