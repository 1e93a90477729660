"""Who may replace a record next, where several processes do. Only spares them work in vain: versions keep it right."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex

from esper.bus.connect import Redis
from esper.bus.faults import UnavailableError

SHARED_FOR_S = 5.0
"""After it was met that another replaced the record."""
LASTS_MS = 500
"""A turn, at most: whoever stands still meanwhile has lost it."""
LOOK_EVERY_S = 0.002
GIVE_BACK = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"


class Turns:
    """Without contention nothing is asked. Once another was met, each waits for its turn, and nobody starves: whoever
    has more in hand takes longer to fold it anew, and would be overtaken each time."""

    def __init__(self, redis: Redis, record: str) -> None:
        self.redis, self.key = redis, f"{record}:turn"
        self._token, self._shared_until_s, self._held = token_hex(8), 0.0, False

    def met(self) -> None:
        """Another has replaced the record."""
        self._shared_until_s = time.monotonic() + SHARED_FOR_S

    @property
    def is_shared(self) -> bool:
        """Whether others replace the record too, as far as is known."""
        return time.monotonic() < self._shared_until_s

    @asynccontextmanager
    async def mine(self) -> AsyncIterator[None]:
        """A turn for as long as the block runs, within limits; at once where the server can't say, or it is ours."""
        if self._held or not self.is_shared:
            yield
            return
        try:
            while not await self._taken():
                await asyncio.sleep(LOOK_EVERY_S * random.uniform(0.5, 1.5))
        except UnavailableError:
            yield
            return
        self._held = True
        try:
            yield
        finally:
            self._held = False
            await self._give_back()

    async def _taken(self) -> bool:
        reply: bytes | None = await self.redis.execute_command("SET", self.key, self._token, "NX", "PX", LASTS_MS)
        return reply is not None and bool(reply)

    async def _give_back(self) -> None:
        try:
            await self.redis.execute_command("EVAL", GIVE_BACK, 1, self.key, self._token)
        except UnavailableError:
            return  # it ends by itself
