"""What /readyz is told by a real Redis: how late its readers are, and that it is gone, hung or refuses to tell."""

from __future__ import annotations

from pathlib import Path

from esper.bus import connect
from esper.bus.group.inbox import Inbox
from esper.bus.names import key
from esper.errors import BusError
from esper.runtime.operations.health import Health
from esper.runtime.operations.vitals import Look
from tests.bus_kit import drain, own_server, put


def failing(health: Health) -> list[str]:
    return [finding.check for finding in health.ready() if finding.status == "fail"]


def reading(stream: str, group: str) -> Health:
    health = Health()
    health.sources[stream, group] = lambda: False
    return health


async def test_the_lag_is_the_age_of_the_oldest_entry_that_was_not_read(
    redis: connect.Redis, redis_reader: connect.Redis, run_id: str
) -> None:
    stream, now_ms = key(run_id, "votes"), await connect.server_ms(redis)
    await redis.execute_command("XADD", stream, now_ms - 90_000, "m", b"x")
    await drain(Inbox(redis_reader, redis, stream, "group", "c"))
    health = reading(stream, "group")

    await Look(redis, health).look()
    nothing = dict(health.vitals.lags_s)
    for age_ms in (60_000, 1_000):
        await redis.execute_command("XADD", stream, now_ms - age_ms, "m", b"x")
    await Look(redis, health).look()
    late = health.vitals.lags_s[stream, "group"]

    assert nothing == {(stream, "group"): 0.0}
    assert 60.0 <= late < 90.0
    assert failing(health) == [f"lag of {stream} (group)"]


async def test_a_stream_or_a_group_that_is_not_there_yet_is_not_late(redis: connect.Redis, run_id: str) -> None:
    await put(redis, key(run_id, "votes"), b"1")
    health = reading(key(run_id, "commands"), "group")
    health.sources[key(run_id, "votes"), "other"] = lambda: False

    await Look(redis, health).look()

    assert set(health.vitals.lags_s.values()) == {0.0} and failing(health) == []


async def test_a_redis_that_is_gone_is_named_and_so_is_its_return(short_directory: Path) -> None:
    with own_server(short_directory) as server:
        async with connect.client(server.url, 1.0) as redis:
            health = reading("votes", "group")
            health.watch("votes", lambda: 0.0)
            look = Look(redis, health)
            await look.look()
            well = failing(health)
            server.stop()
            await look.look()
            gone, alive = failing(health), [finding.status for finding in health.live()]
            why, unread = health.vitals.why, health.vitals.lags_s
            server.start()
            await look.look()

            assert (well, failing(health)) == (["progress of votes"], ["progress of votes"])
            assert gone == ["redis", "progress of votes"] and "cannot be reached" in why
            assert alive == ["ok"]
            assert (unread, health.vitals.lags_s) == ({}, {("votes", "group"): 0.0})


async def test_what_waits_for_redis_is_named_while_it_answers(redis: connect.Redis) -> None:
    health = Health()
    health.watch("votes", lambda: 0.0)  # what waits to write reads nothing either
    redis.outage.begins("outbox", BusError("Redis is out of memory"))
    await Look(redis, health).look()
    waiting = {finding.check: finding.met for finding in health.ready() if finding.status == "fail"}
    alive = [finding.status for finding in health.live()]
    redis.outage.ends("outbox")
    await Look(redis, health).look()

    assert waiting.pop("progress of votes") and waiting == {"redis": "outbox waits: Redis is out of memory"}
    assert alive == ["ok"] and failing(health) == ["progress of votes"]


async def test_a_server_that_does_not_let_us_ask_for_lag_is_no_reason_to_be_unready(
    redis: connect.Redis, redis_url: str, run_id: str
) -> None:
    stream = key(run_id, "votes")
    await put(redis, stream, b"1")
    await redis.execute_command("ACL", "SETUSER", "blind", "on", ">secret", "~*", "+@all", "-xinfo")
    try:
        async with connect.client(redis_url.replace("unix://", "unix://blind:secret@"), 1.0) as blind:
            health = reading(stream, "group")
            await Look(blind, health).look()
    finally:
        await redis.execute_command("ACL", "DELUSER", "blind")

    assert health.vitals.lags_s == {} and failing(health) == []
