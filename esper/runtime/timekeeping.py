"""Keeps a process that lives for long by the server's clock: machines drift, and are suspended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from esper.bus.connect import Redis, ServerClock
from esper.errors import BusError
from esper.runtime.ending import meanwhile

LOOK_EVERY_S = 1.0
"""Much less than a coordinator waits for a rank that it does not hear: what is sealed by a clock that is over a minute
from that of who opens it is refused."""


@asynccontextmanager
async def kept_right(clock: ServerClock, redis: Redis, every_s: float = LOOK_EVERY_S) -> AsyncIterator[None]:
    """Look at the server's clock now, and again every so often while the block runs."""
    await clock.look(redis)
    async with meanwhile(look_again(clock, redis, every_s)):
        yield


async def look_again(clock: ServerClock, redis: Redis, every_s: float) -> None:
    """Without end, but where another of the process has just looked. A look that fails leaves the clock as it was: who
    needs Redis for more says that it is gone."""
    while True:
        before = clock.num_looks
        await asyncio.sleep(every_s)
        if clock.num_looks == before:
            with suppress(BusError):
                await clock.look(redis)
