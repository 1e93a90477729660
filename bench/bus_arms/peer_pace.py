"""What peers share where each message is timed: bodies that say when they were due, and who notes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bus_arms.pace import NUMBER_AND_TIME, PATIENCE_S, paced
from bus_arms.streams import check_handled, plain

HEARD = "peers:heard"
WARM_UP = 0
SIZE = 226  # as the bare loop's
AGAIN_S = 0.1


@dataclass(slots=True)
class Noting:
    """What a peer's handler does. The first messages, which are not timed, tell the sender that somebody handles."""

    url: str
    num: int
    met: list[tuple[int, float]] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def note(self, body: bytes) -> None:
        number, due_ns = NUMBER_AND_TIME.unpack_from(body)
        if number == WARM_UP:
            async with plain(self.url) as redis:
                await redis.set(HEARD, 1)
            return
        self.met.append((number, (time.monotonic_ns() - due_ns) / 1e6))
        if len(self.met) == self.num:
            self.done.set()

    async def taken_ms(self, seconds: float) -> list[float]:
        """Milliseconds of each, once all were handled, each once."""
        async with asyncio.timeout(seconds + PATIENCE_S):
            await self.done.wait()
        check_handled([number for number, _ in self.met], self.num)
        return [taken_ms for _, taken_ms in self.met]


async def send_paced(url: str, publish: Callable[[bytes], Awaitable[object]], num: int, seconds: float) -> None:
    """Some until the listener handles them, however long it takes to start; then `num`, spread evenly, each awaited."""
    async with plain(url) as redis, asyncio.timeout(PATIENCE_S):
        await redis.delete(HEARD)
        while not await redis.exists(HEARD):  # a listener that starts may begin with an empty stream
            await publish(body(WARM_UP, 0))
            await asyncio.sleep(AGAIN_S)

    async def one(number: int, due_ns: int) -> None:
        await publish(body(number, due_ns))

    await paced(one, num, seconds)


async def ended(task: asyncio.Task[None]) -> None:
    """Cancel it until it ends: Python 3.11's wait_for, in the Redis client, may swallow a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=AGAIN_S)


def body(number: int, due_ns: int) -> bytes:
    return NUMBER_AND_TIME.pack(number, due_ns).ljust(SIZE, b"\0")
