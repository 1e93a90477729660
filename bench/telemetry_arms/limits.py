"""What the tiers are held against: the client's own loop with one HMAC a message, and numpy alone."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from bus_arms.bare import looped
from bus_arms.streams import GROUP, check_consumed, plain
from telemetry_arms.streams import fill
from telemetry_arms.traffic import sealed, values_of

STREAM = "bare:telemetry"


async def bare(url: str, directory: str, form: str, num: int) -> float:
    """Seconds to read, compute one HMAC a message, and acknowledge."""
    return await timed(url, directory, form, num, time.perf_counter)


async def bare_alone(url: str, directory: str, form: str, num: int) -> float:
    """The same in seconds of the processor."""
    return await timed(url, directory, form, num, time.process_time)


async def timed(url: str, directory: str, form: str, num: int, clock: Callable[[], float]) -> float:
    bodies, handled = sealed(directory, form, num), list[bytes]()
    await fill(url, STREAM, bodies, GROUP)
    async with plain(url) as redis:
        await redis.get("connected")
        began = clock()
        await looped(redis, STREAM, handled)
        seconds = clock() - began
    await check_consumed(url, STREAM, handled, len(bodies))
    return seconds


async def reduce(url: str, directory: str, form: str, num: int) -> float:
    """Seconds of numpy to reduce the same values, all at once: sum, mean, M2, minimum and maximum."""
    values = np.ascontiguousarray(values_of(num).T)
    began = time.perf_counter()
    sums = values.sum(axis=1)
    means = sums / num
    np.square(values - means[:, np.newaxis]).sum(axis=1)
    values.min(axis=1), values.max(axis=1)
    return time.perf_counter() - began
