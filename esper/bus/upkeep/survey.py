"""How each stream of a run stands: its length, and what each of its groups has yet to read and to settle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from esper.bus.connect import Redis, server_ms
from esper.bus.group.groups import groups_of
from esper.bus.names import RUN_KEY, STREAMS, key, region_key, shown
from esper.leyline.entries import LAST_ID

ACTIVE_MS = 10_000  # before 7.2 a server counts from the last entry given, not from the last that was asked for
MOST_COUNTED = 1_000
# Without sending them over. Servers before 7.0 don't know a group's lag, nor do later ones after some deletions.
COUNT_AFTER = "return #redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])"


@dataclass(frozen=True, slots=True)
class Group:
    """One group of one stream. `lag` None: more than can be counted at leisure."""

    name: str
    lag: int | None
    pending: int
    oldest_pending_s: float
    max_attempts: int  # of the thousand oldest that are pending
    num_active: int
    num_quiet: int


@dataclass(frozen=True, slots=True)
class StreamView:
    """One stream, under the name that a person gives it: behind its region where it has one."""

    name: str
    length: int
    groups: tuple[Group, ...] = field(default=())
    has_ids: bool = True
    """Whether there is an id left for one more entry: whoever may add to a stream may use up all of them."""


async def survey(redis: Redis, run_id: str) -> list[StreamView]:
    """Every stream of the run that exists, in the order of the table of streams."""
    now_ms = await server_ms(redis, key(run_id, "heartbeats"))
    regions = await regions_of(redis, run_id)
    keys = {
        key_: name
        for row in STREAMS
        for key_, name in (
            [(region_key(run_id, region, row.name), f"{region}/{row.name}") for region in regions]
            if row.regional
            else [(key(run_id, row.name), row.name)]
        )
    }
    views = [await view(redis, key_, name, now_ms) for key_, name in keys.items()]
    return [one for one in views if one is not None]


async def lags(redis: Redis, run_id: str, streams: Iterable[str]) -> dict[tuple[str, str], int | None]:
    """What each group of these streams has yet to read, by stream and group; None: more than can be counted at leisure.

    Asks for these keys alone: looking for others (SCAN) takes as long as the server has keys.
    """
    found: dict[tuple[str, str], int | None] = {}
    for name in streams:
        stream = key(run_id, name)
        groups = await groups_of(redis, stream)
        found |= {(name, shown(facts["name"])): await lag_of(redis, stream, facts) for facts in groups}
    return found


async def regions_of(redis: Redis, run_id: str) -> list[str]:
    """Regions that have a stream."""
    found = set()
    async for name in redis.scan_iter(match=f"esper:{{{run_id}/*}}:*", count=1_000):
        parts = RUN_KEY.fullmatch(name.decode(errors="replace"))
        if parts and parts["region"]:
            found.add(parts["region"])
    return sorted(found)


async def view(redis: Redis, stream: str, name: str, now_ms: int) -> StreamView | None:
    """One stream; None: there is none under this key."""
    if await redis.type(stream) != b"stream":
        return None
    whole: Any = await redis.xinfo_stream(stream)
    facts: Any = await redis.xinfo_groups(stream)
    groups = tuple([await group_view(redis, stream, one, now_ms) for one in facts])
    has_ids = whole["last-generated-id"] != LAST_ID.encode()
    return StreamView(shown(name.encode()), whole["length"], groups, has_ids)


async def group_view(redis: Redis, stream: str, facts: Mapping[str, Any], now_ms: int) -> Group:
    name = facts["name"]
    consumers: Any = await redis.xinfo_consumers(stream, name)
    num_active = sum(one["idle"] < ACTIVE_MS for one in consumers)
    oldest: Any = await redis.xpending_range(stream, name, "-", "+", MOST_COUNTED) if facts["pending"] else []
    return Group(
        name=shown(name),
        lag=await lag_of(redis, stream, facts),
        pending=facts["pending"],
        oldest_pending_s=max(0, now_ms - _made_ms(oldest[0]["message_id"])) / 1000 if oldest else 0.0,
        max_attempts=max((one["times_delivered"] for one in oldest), default=0),
        num_active=num_active,
        num_quiet=len(consumers) - num_active,
    )


async def lag_of(redis: Redis, stream: str, facts: Mapping[str, Any]) -> int | None:
    """Entries not yet handed to anybody of the group, as the server tells, or else counted up to a thousand."""
    told: int | None = facts.get("lag")
    last = facts["last-delivered-id"]
    if last == LAST_ID.encode():  # behind which no server looks for more
        return 0
    if told:  # 7.0.15 loses count when it starts again, and tells of a lag for ever where all was handed out
        newest: Any = await redis.xinfo_stream(stream)
        return 0 if newest["last-generated-id"] == last else told
    if told is not None:
        return told
    counted = int(await redis.execute_command("EVAL", COUNT_AFTER, 1, stream, last, MOST_COUNTED + 1))
    return counted if counted <= MOST_COUNTED else None


def _made_ms(entry_id: bytes) -> int:
    return int(entry_id.partition(b"-")[0])
