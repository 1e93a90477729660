"""Waits until the groups of some streams have settled all that was added to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from esper.bus.connect import Redis
from esper.bus.group.backlog import waiting

LOOK_S = 0.05


async def settled(redis: Redis, groups: Iterable[tuple[str, str]], limit_s: float) -> float:
    """How many entries wait in these streams and groups, at the latest after `limit_s`: 0, or it took too long."""
    groups, deadline = list(groups), time.monotonic() + limit_s
    while num := sum([await waiting(redis, stream, group) for stream, group in groups]):
        if time.monotonic() >= deadline:
            break
        await asyncio.sleep(LOOK_S)
    return num
