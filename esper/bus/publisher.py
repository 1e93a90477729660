"""Adds one sealed message to a stream, once."""

from __future__ import annotations

from esper.bus.connect import Redis
from esper.bus.delivery import FIELD
from esper.bus.faults import UnavailableError


class Publisher:
    """On a writer. Never repeats an XADD by itself: a lost reply leaves it open whether the entry is there."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    async def add(self, stream_key: str, sealed: bytes) -> str:
        """Id of the entry. After LostError the same bytes may be added again: the replay window tells them apart."""
        who = f"writer of {stream_key}"
        try:
            entry_id: bytes = await self.redis.execute_command("XADD", stream_key, "*", FIELD, sealed)
        except UnavailableError as error:
            self.redis.outage.begins(who, error)
            raise
        self.redis.outage.ends(who)
        return entry_id.decode()
