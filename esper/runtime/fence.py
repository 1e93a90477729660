"""Who coordinates a run: the newest one to say so. One that was replaced can write nothing more."""

from __future__ import annotations

from typing import Any

from esper.bus import names
from esper.bus.connect import Redis
from esper.bus.settlement import Settlement
from esper.errors import StaleLeaseError

FIELD = "coordinator"


class ReplacedError(StaleLeaseError):
    """Another coordinator has taken over."""

    def __init__(self, key: str) -> None:
        super().__init__(key, FIELD)
        self.args = (f"another coordinator has taken over, as {key} says; nothing was written, and this one ends",)


class Fence:
    """One field in Redis that names the coordinator; every settlement of another one is refused whole."""

    def __init__(self, run_id: str, incarnation: int) -> None:
        self.key = names.key(run_id, "barrier")
        self._own = f"{incarnation:016x}".encode()

    async def claim(self, redis: Redis, settlement: Settlement) -> None:
        """Take over with this settlement from whoever it is now; of two that do so at once, one is refused."""
        settlement.expect(self.key, FIELD, await self._holder(redis))
        settlement.put(self.key, {FIELD: self._own})

    def guard(self, settlement: Settlement) -> None:
        """Let the settlement stand only while this coordinator is in charge."""
        settlement.expect(self.key, FIELD, self._own)

    async def renew(self, redis: Redis, settlement: Settlement) -> None:
        """Where nobody is named any more Redis has lost its history: claim again. ReplacedError where another is."""
        if await self._holder(redis) is not None:
            raise ReplacedError(self.key)
        settlement.expectations[:] = [each for each in settlement.expectations if each.key != self.key]
        settlement.expect(self.key, FIELD, None)
        settlement.put(self.key, {FIELD: self._own})

    async def _holder(self, redis: Redis) -> bytes | None:
        holder: Any = await redis.hget(self.key, FIELD)
        return holder if holder is None else bytes(holder)
