"""Adds one sealed message to a stream, once."""

from __future__ import annotations

from esper.bus.connect import Redis
from esper.bus.delivery import FIELD


class Publisher:
    """On a writer. Never repeats an XADD by itself: a lost reply leaves it open whether the entry is there."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    async def add(self, stream_key: str, sealed: bytes) -> str:
        """Id of the entry. After LostError the same bytes may be added again: the replay window tells them apart."""
        entry_id: bytes = await self.redis.execute_command("XADD", stream_key, "*", FIELD, sealed)
        return entry_id.decode()
