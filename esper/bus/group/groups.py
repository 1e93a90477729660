"""What a server tells of the groups of a stream."""

from __future__ import annotations

from typing import Any

from esper.bus.connect import Redis
from esper.errors import BusError


async def groups_of(redis: Redis, stream: str) -> list[dict[str, Any]]:
    """The fields of each, as XINFO GROUPS has them; none where there is no such stream (yet)."""
    try:
        found: list[dict[str, Any]] = await redis.xinfo_groups(stream)
    except BusError as error:
        if "no such key" in str(error):
            return []
        raise
    return found


async def group_of(redis: Redis, stream: str, name: str) -> dict[str, Any] | None:
    """Those of one."""
    return next((facts for facts in await groups_of(redis, stream) if facts["name"] == name.encode()), None)
