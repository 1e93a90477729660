"""Frees what every group has read and settled, or what is too old where nobody reads by group; nothing else."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from importlib.resources import files

from esper.bus.connect import Redis

SOURCE = files("esper.bus.upkeep").joinpath("trim.lua").read_text()
MOST_CALLS = 100  # a call frees at most 10,000 entries: the server would stand still for longer ones


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a stream without groups is kept: younger entries than this, and no more than so many of them."""

    max_age_s: float
    max_length: int


async def trim(redis: Redis, stream: str, groups: Collection[str] = (), *, before_ms: int | None = None) -> int:
    """Trim what was made before, by the server's clock, up to the lowest entry unread or pending in any group.

    Returns how many went. Nothing goes without a group, nor while one of `groups` is missing: once made again it
    begins at `0`.
    """
    floor = "" if before_ms is None else f"{max(0, before_ms)}-0"
    return await _trim(redis, stream, floor, "", groups)


async def cut(redis: Redis, stream: str, below: str, groups: Collection[str] = ()) -> int:
    """Trim what lies below an entry, also where nobody reads by group; nothing unread or pending in any group.

    Returns how many went. Nothing goes while one of `groups` is missing.
    """
    return await _trim(redis, stream, below, "any", groups)


async def retain(redis: Redis, stream: str, kept: Retention, now_ms: int) -> int:
    """Trim what is too old or too much; where somebody does read by group, nothing unread or pending in it."""
    oldest_ms = max(0, now_ms - int(kept.max_age_s * 1000))
    return await _trim(redis, stream, f"{oldest_ms}-0", str(kept.max_length), ())


async def _trim(redis: Redis, stream: str, floor: str, most: str, groups: Collection[str]) -> int:
    """By whole nodes of the stream, which is cheap, again and again; the last few entries one by one."""
    num = 0
    for _ in range(MOST_CALLS):
        trimmed = await _call(redis, stream, "~", floor, most, groups)
        num += trimmed
        if not trimmed:
            return num + await _call(redis, stream, "=", floor, most, groups)
    return num


async def _call(redis: Redis, stream: str, how: str, floor: str, most: str, groups: Collection[str]) -> int:
    return int(await redis.execute_command("EVAL", SOURCE, 1, stream, how, floor, most, *groups))
