"""One publish at a time, awaited: ours and the client's own XADD take turns, call by call, in one process."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from nacl.signing import SigningKey
from redis.asyncio import Redis

from bus_arms.traffic import RUN, SEALED_BY, message, sealed, sealer
from esper.bus import connect, names
from esper.bus.publisher import Publisher

Call: TypeAlias = Callable[[int], Awaitable[object]]


async def samples(url: str, directory: str, what: str, num: int, seed: int) -> dict[str, list[float]]:
    """Microseconds of each call of each arm."""
    body = sealed(directory, what, 1)[0]
    async with Redis.from_url(url, protocol=2) as plain, connect.writer(url) as writer:

        async def bare(number: int) -> None:
            await plain.xadd("bare:single", {b"m": body})

        calls: dict[str, Call] = {"ours": ours(writer, directory, what), "bare": bare, "bare again": bare}
        taken = await interleaved(calls, num, random.Random(seed))
        await plain.unlink("bare:single", names.key(RUN, what))
        return taken


def ours(writer: connect.Redis, directory: str, what: str) -> Call:
    publisher, by, stream = Publisher(writer), sealer(directory, SEALED_BY[what]), names.key(RUN, what)

    async def call(number: int) -> None:
        await publisher.add(stream, by.seal(message(what, number, time.time_ns())))

    return call


async def interleaved(calls: dict[str, Call], num: int, order: random.Random) -> dict[str, list[float]]:
    arms, taken = list(calls), {arm: list[float]() for arm in calls}
    for number in range(1, num + 1):
        order.shuffle(arms)
        for arm in arms:
            began = time.perf_counter_ns()
            await calls[arm](number)
            taken[arm].append((time.perf_counter_ns() - began) / 1_000)
    return taken


async def signing(url: str, directory: str, num: int) -> list[float]:
    """Microseconds of each Ed25519 signature over a command: the part of sealing one that is not ours to save."""
    key, body = SigningKey.generate(), sealed(directory, "command", 1)[0]
    taken = []
    for _ in range(num):
        began = time.perf_counter_ns()
        key.sign(body)
        taken.append((time.perf_counter_ns() - began) / 1_000)
    return taken
