"""Looks at a Redis: asks, and writes nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

from esper.bus.acl import USERS, grants
from esper.bus.client.version import version_of
from esper.bus.connect import Redis, server_ms
from esper.bus.durability import ask_one
from esper.bus.faults import without_password
from esper.bus.protocol import pairs_of
from esper.doctor.facts import ServerFacts
from esper.doctor.users import default_user, has_named_users, told, whoami

NUM_ROUND_TRIPS = 20
BESIDE = ("EXPIRE", "GETRANGE", "SCAN", "SCRIPT", "SETRANGE")
"""What is given besides all that some role is granted on keys."""


async def server_facts(redis: Redis) -> ServerFacts:
    """Of one server. BusError: it can't be reached, or does not tell what every user may ask."""
    info = cast(Mapping[str, Any], await redis.info())
    promised, least = await ask_one(redis), await told(redis, "CONFIG", "GET", "min-replicas-to-write")
    round_trips_s, skew_s = await timed(redis)
    user = await whoami(redis)
    return ServerFacts(
        at=without_password(redis.url),
        version=version_of(info),
        role=str(info.get("role", "master")),
        policy=str(info.get("maxmemory_policy", "noeviction")),
        max_memory_bytes=int(info.get("maxmemory", 0)),
        used_memory_bytes=int(info.get("used_memory", 0)),
        total_memory_bytes=int(info.get("total_system_memory", 0)),
        num_evicted=int(info.get("evicted_keys", 0)),
        last_writes_well=all(
            info.get(name, "ok") == "ok" for name in ("aof_last_write_status", "rdb_last_bgsave_status")
        ),
        promise=promised.sentence,
        window_s=promised.window_s,
        durable=promised.durable,
        tells_settings=least is not None,
        num_replicas=int(info.get("connected_slaves", 0)),
        num_replicas_wanted=int(next(iter(pairs_of(least).values()), 0)),
        user=user,
        named_users=await has_named_users(redis, user),
        default_user=await default_user(redis),
        skew_s=skew_s,
        round_trips_s=round_trips_s,
        lacks=await lacking(redis),
    )


async def lacking(redis: Redis) -> tuple[str, ...]:
    """Of the commands of a run those that are not known; none where the server does not tell."""
    wanted = given()
    found = await told(redis, "COMMAND", "INFO", *wanted) or [True] * len(wanted)
    return tuple(name for name, facts in zip(wanted, found, strict=True) if not facts)


def given() -> list[str]:
    """What a run can't do without, and a first message does not show all of."""
    granted = {command for user in USERS for grant in grants("", user) for command in grant.commands}
    return sorted({command.partition("|")[0].upper() for command in granted}.union(BESIDE))


async def timed(redis: Redis) -> tuple[tuple[float, ...], float]:
    """Round trips of TIME, shortest first; and our clock ahead of the server's, by the shortest: it knows best."""
    looks = []
    for _ in range(NUM_ROUND_TRIPS):
        at_s, began_s = time.time(), time.monotonic()
        there_ms = await server_ms(redis)
        took_s = time.monotonic() - began_s
        looks.append((took_s, at_s + took_s / 2 - there_ms / 1000))
    looks.sort()
    return tuple(took_s for took_s, _ in looks), looks[0][1]
