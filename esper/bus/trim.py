"""Frees what every group has read and settled, and nothing else."""

from __future__ import annotations

from typing import Any

from esper.bus.connect import Redis
from esper.bus.script import id_order


async def trim(redis: Redis, stream: str) -> int:
    """Trim a stream below the lowest entry that any group still needs; how many went. Without a group nothing goes."""
    keep = await lowest_needed(redis, stream)
    if keep is None:
        return 0
    return int(await redis.execute_command("XTRIM", stream, "MINID", "~", keep))


async def lowest_needed(redis: Redis, stream: str) -> str | None:
    """The lowest id that is pending, or last delivered, in any group. None: nobody reads by group."""
    if not await redis.exists(stream):
        return None
    groups: Any = await redis.xinfo_groups(stream)
    needed = []
    for group in groups:
        pending: Any = await redis.xpending(stream, group["name"])
        needed.append((pending["min"] or group["last-delivered-id"]).decode())
    return min(needed, key=id_order, default=None)
