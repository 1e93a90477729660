"""Carries a settlement out in one round trip, exactly once, also when the reply to it is lost."""

from __future__ import annotations

import asyncio
import time
from secrets import token_hex

from esper.bus.connect import Redis
from esper.bus.drive import drive
from esper.bus.group.settlement import Settlement
from esper.bus.group.settling import recall, settle
from esper.bus.names import beside
from esper.bus.protocol import RetryPolicy, Surroundings

PATIENCE_S = 60.0


class Outbox:
    """One per process and run, on a writer. Settles one settlement at a time, in the order asked for."""

    def __init__(self, redis: Redis, patience_s: float = PATIENCE_S) -> None:
        self.redis = redis
        self.retry_policy = RetryPolicy(Surroundings(time.monotonic, outage=redis.outage), "outbox", patience_s)
        self._name, self._count = token_hex(8), 0
        self._turn, self._never = asyncio.Lock(), asyncio.Event()

    async def settle(self, settlement: Settlement) -> list[str]:
        """Ids of the messages written, in order. StaleLeaseError: an entry was taken over, nothing was written.

        RepeatedError: messages took effect before, nothing was written. A server that is lost, read-only or out of
        memory is waited out.
        """
        if settlement.empty:
            return []
        async with self._turn:
            for call in settlement.by_slot() if self.redis.by_slot else [settlement]:
                written = await self._carry_out(call)
        for lease, ids in settlement.acks.items():
            if holder := self.redis.holders.get(lease):
                holder.forget(ids)
        return written

    def memory(self, stream: str) -> str:
        """Key in the stream's slot, under which the server remembers for a while what was settled by this."""
        return beside(stream, f"settled:{self._name}")

    async def _carry_out(self, settlement: Settlement) -> list[str]:
        self._count += 1
        steps = settle(settlement, self.memory(settlement.first_key), f"{self._count}:", self.retry_policy)
        return await drive(steps, self.redis, self.redis, self._never)

    async def recall(self, hash_key: str) -> dict[bytes, bytes]:
        """Every field of a record, with the same patience."""
        return await drive(recall(hash_key, self.retry_policy), self.redis, self.redis, self._never)
