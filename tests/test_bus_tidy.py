"""Consumers and groups that nobody uses go, with nothing pending lost; how each stream stands is told."""

from __future__ import annotations

import asyncio

import pytest

from esper.bus.connect import Redis, server_ms
from esper.bus.group.consumer import Pace
from esper.bus.group.inbox import Inbox
from esper.bus.names import key, region_key
from esper.bus.upkeep.survey import Group, lags, regions_of, survey
from esper.bus.upkeep.tidy import Position, drop_idle_consumers, forget_group
from esper.doctor.run_checks import stream_findings
from esper.errors import BusError, SettingError
from esper.leyline.entries import LAST_ID
from tests.bus_kit import drain, num_pending, put


async def consumers(redis: Redis, stream: str) -> set[str]:
    return {one["name"].decode() for one in await redis.xinfo_consumers(stream, "group")}


async def test_idle_consumers_with_nothing_pending_are_deleted(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    stream = key(run_id, "votes")
    [entry] = await put(redis, stream, b"1")
    await drain(Inbox(redis_reader, redis, stream, "group", "holder"))
    for name in ("gone", "own"):
        await redis.xgroup_createconsumer(stream, "group", name)

    early = await drop_idle_consumers(redis, stream, "group", "own")
    dropped = await drop_idle_consumers(redis, stream, "group", "own", idle_ms=0)

    assert (early, dropped) == ([], ["gone"])
    assert await consumers(redis, stream) == {"holder", "own"}
    [taken_over] = await drain(Inbox(redis_reader, redis, stream, "group", "own", Pace(reclaim_after_ms=0)))
    assert taken_over.entry_id == entry
    assert await drop_idle_consumers(redis, stream, "group", "own", idle_ms=0) == ["holder"]
    assert await num_pending(redis, stream) == 1


async def test_a_stream_or_a_group_that_is_not_there_has_nothing_to_delete(redis: Redis, run_id: str) -> None:
    stream = key(run_id, "votes")

    assert await drop_idle_consumers(redis, stream, "group", "own", idle_ms=0) == []
    assert await forget_group(redis, stream, "group") is None
    await put(redis, stream, b"1")
    assert await drop_idle_consumers(redis, stream, "group", "own", idle_ms=0) == []
    assert await forget_group(redis, stream, "group") is None


async def test_a_group_is_forgotten_once_nobody_reads_it_and_its_position_is_told(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "commands")
    ids = await put(redis, stream, b"1", b"2")
    await drain(Inbox(redis_reader, redis, stream, "worker-9", "worker-9"))

    with pytest.raises(SettingError, match="one that has not read"):
        await forget_group(redis, stream, "worker-9")
    looked = await forget_group(redis, stream, "worker-9", idle_ms=0, dry_run=True)
    forgotten = await forget_group(redis, stream, "worker-9", idle_ms=0)

    assert looked == forgotten == Position(ids[-1], 2)
    assert await forget_group(redis, stream, "worker-9", idle_ms=0) is None


async def test_the_survey_tells_what_each_group_has_yet_to_read_and_settle(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    votes = key(run_id, "votes")
    await put(redis, region_key(run_id, "eu", "telemetry"), b"1")
    old = await server_ms(redis) - 5_000
    await redis.xadd(votes, {"m": b"0"}, id=f"{old}-0")
    await put(redis, votes, b"1", b"2")
    await drain(Inbox(redis_reader, redis, votes, "coordinator", "dead", Pace(count=2)))
    await drain(Inbox(redis_reader, redis, votes, "coordinator", "heir", Pace(reclaim_after_ms=0)))
    await put(redis, votes, b"3", b"4")

    views = {one.name: one for one in await survey(redis, run_id)}

    assert await regions_of(redis, run_id) == ["eu"]
    assert (views["eu/telemetry"].length, views["eu/telemetry"].groups) == (1, ())
    assert set(views) == {"votes", "eu/telemetry"}
    [group] = views["votes"].groups
    assert 5.0 <= group.oldest_pending_s < 60.0
    assert group == Group("coordinator", 2, 3, group.oldest_pending_s, 2, 2, 0)


async def test_a_lag_that_the_server_cannot_tell_is_counted_as_far_as_it_is_cheap(redis: Redis, run_id: str) -> None:
    votes = key(run_id, "votes")
    async with redis.pipeline(transaction=False) as pipe:
        for _ in range(2_000):
            pipe.xadd(votes, {"m": b""})
        ids = await pipe.execute()
    await redis.xgroup_create(votes, "far", id="0")
    await redis.xgroup_create(votes, "near", id=ids[1_499])
    await redis.xdel(votes, ids[1_000], ids[1_600])  # from here on 7.0 too tells no lag of either

    [view] = await survey(redis, run_id)

    assert {group.name: group.lag for group in view.groups} == {"far": None, "near": 499}


async def test_a_stream_without_an_id_left_is_told_of_and_goes_on_as_an_administrator_is_told(
    redis: Redis, run_id: str
) -> None:
    votes = key(run_id, "votes")
    [first] = await put(redis, votes, b"1")
    await redis.xgroup_create(votes, "coordinator", id="0")
    await redis.xadd(votes, {"m": b"2"}, id=LAST_ID)
    await redis.xreadgroup("coordinator", "c", {votes: ">"})

    [full] = await survey(redis, run_id)
    with pytest.raises(BusError, match="has no id left in a stream, as somebody added the last"):
        await put(redis, votes, b"3")
    await redis.xdel(votes, LAST_ID)
    await redis.execute_command("XSETID", votes, first)
    await redis.execute_command("XGROUP", "SETID", votes, "coordinator", first)
    await put(redis, votes, b"3")
    [mended] = await survey(redis, run_id)

    assert (full.has_ids, [group.lag for group in full.groups]) == (False, [0])
    assert (mended.has_ids, mended.length, [group.lag for group in mended.groups]) == (True, 2, [1])
    assert stream_findings([full, mended])[0].status == "fail" and stream_findings([mended])[0].status == "ok"


async def test_names_of_any_bytes_are_looked_at_and_shown_without_what_would_move_a_cursor(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    """Whoever may make a group, a consumer or a region's stream may name it so."""
    votes = key(run_id, "votes")
    await put(redis, region_key(run_id, "\x1b[2J", "telemetry"), b"1")
    await redis.xadd(region_key(run_id, "?", "telemetry").encode().replace(b"?", b"\xff"), {"m": b"1"})
    await redis.xgroup_create(votes, b"\xff\x1b[2J", id="0", mkstream=True)

    views = {one.name: one for one in await survey(redis, run_id)}
    told = await lags(redis, run_id, ["votes"])
    await redis.xgroup_create(votes, "coordinator", id="0")
    await redis.execute_command("XGROUP", "CREATECONSUMER", votes, "coordinator", b"\xfe\r")
    dropped = await drop_idle_consumers(redis, votes, "coordinator", "another", idle_ms=0)

    assert set(views) == {"?[2J/telemetry", "votes"}
    assert [group.name for group in views["votes"].groups] == ["\ufffd?[2J"]
    assert told == {("votes", "\ufffd?[2J"): 0}
    assert dropped == ["\ufffd?"]


async def test_a_consumer_that_is_deleted_while_it_waits_is_given_the_next_entry_all_the_same(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "votes")
    [first] = await put(redis, stream, b"1")
    inbox = Inbox(redis_reader, redis, stream, "group", "quiet", Pace(block_ms=20_000))
    await inbox.open()
    batches = inbox.batches()
    await anext(batches)
    await redis.xack(stream, "group", first)
    waiting = asyncio.create_task(anext(batches))
    async with asyncio.timeout(120):
        while not int((await redis.info("clients"))["blocked_clients"]):
            await asyncio.sleep(0)

    dropped = await drop_idle_consumers(redis, stream, "group", "other", idle_ms=0)
    [second] = await put(redis, stream, b"2")
    [delivery] = await asyncio.wait_for(waiting, 120)
    await batches.aclose()

    assert dropped == ["quiet"]
    assert delivery.entry_id == second
    assert await consumers(redis, stream) == {"quiet"}
