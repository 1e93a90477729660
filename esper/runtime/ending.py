"""How tasks are ended when the work that they belong to is over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import structlog

log = structlog.get_logger()

AGAIN_S = 0.5


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
