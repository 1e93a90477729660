"""Every entry is handed over: through restarts, deaths of consumers, and the loss of the group."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from esper.bus import connect
from esper.bus.connect import Redis
from esper.bus.group.consumer import Pace
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.names import key
from tests.bus_kit import drain, lossy_line, num_pending, own_server, put


@pytest.fixture
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second later a consumer looks anew at what is pending, and would find what it missed."""
    monkeypatch.setattr("esper.bus.group.consumer.SWEEP_AGAIN_S", (3_600.0,))


@pytest.mark.usefixtures("no_second_look")
async def test_the_own_pending_list_is_emptied_first_after_a_restart(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "decisions")
    await put(redis, stream, b"1", b"2")
    await drain(Inbox(redis_reader, redis, stream, "group", "worker-0"))
    await put(redis, stream, b"3")

    restarted = Inbox(redis_reader, redis, stream, "group", "worker-0")
    handed = await drain(restarted)

    assert [(delivery.body, delivery.attempts) for delivery in handed] == [(b"1", 2), (b"2", 2), (b"3", 1)]
    assert restarted.pending.num_redelivered == 2


async def test_entries_of_a_dead_consumer_are_taken_over(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    stream = key(run_id, "votes")
    await put(redis, stream, *(b"%d" % number for number in range(300)))
    dead = Inbox(redis_reader, redis, stream, "group", "dead", Pace(count=64))
    await drain(dead)

    heir = Inbox(redis_reader, redis, stream, "group", "heir", Pace(reclaim_after_ms=0, count=64))
    with capture_logs() as logs:
        handed = await drain(heir)

    assert [delivery.body for delivery in handed] == [b"%d" % number for number in range(300)]
    assert {delivery.attempts for delivery in handed} == {2}
    assert heir.pending.num_reclaimed == 300
    assert [line["count"] for line in logs if line["event"] == "entries.reclaimed"] == [300]


async def test_entries_of_a_consumer_that_is_at_work_are_left_to_it(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "votes")
    await put(redis, stream, b"1")
    await drain(Inbox(redis_reader, redis, stream, "group", "busy"))

    handed = await drain(Inbox(redis_reader, redis, stream, "group", "other", Pace(reclaim_after_ms=3_600_000)))

    assert handed == []


async def test_what_is_in_hand_is_handed_over_again_only_when_asked_for(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "commands")
    await put(redis, stream, b"1", b"2")
    inbox = Inbox(redis_reader, redis, stream, "group", "c", Pace(reclaim_after_ms=0))

    first = await drain(inbox)
    inbox.pending.restart()
    second = await drain(inbox)
    inbox.rewind()
    third = await drain(inbox)

    assert [delivery.body for delivery in first] == [b"1", b"2"]
    assert second == []
    assert [(delivery.body, delivery.attempts) for delivery in third] == [(b"1", 2), (b"2", 2)]


async def test_from_the_third_delivery_on_an_entry_comes_alone(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    stream = key(run_id, "votes")
    await put(redis, stream, b"1", b"2", b"3")
    for _ in range(2):
        await drain(Inbox(redis_reader, redis, stream, "group", "c"))

    restarted = Inbox(redis_reader, redis, stream, "group", "c")
    batches = [batch async for batch in restarted.batches(until_idle=True)]

    assert [[(delivery.body, delivery.attempts) for delivery in batch] for batch in batches] == [
        [(b"1", 3)],
        [(b"2", 3)],
        [(b"3", 3)],
    ]


async def test_an_entry_deleted_while_pending_is_counted_and_done_with(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "votes")
    [gone, _] = await put(redis, stream, b"gone", b"here")
    await drain(Inbox(redis_reader, redis, stream, "group", "c"))
    await redis.xdel(stream, gone)

    restarted = Inbox(redis_reader, redis, stream, "group", "c")
    handed = await drain(restarted)

    assert [delivery.body for delivery in handed] == [b"here"]
    assert restarted.pending.num_vanished == 1
    assert await num_pending(redis, stream) == 1


async def test_an_entry_without_the_field_is_handed_over_empty(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    stream = key(run_id, "votes")
    await redis.xadd(stream, {"other": "field"})

    [delivery] = await drain(Inbox(redis_reader, redis, stream, "group", "c"))

    assert delivery.body == b""


async def test_after_flushall_consumption_resumes_with_one_event(short_directory: Path, run_id: str) -> None:
    stream = key(run_id, "votes")
    with own_server(short_directory) as server, capture_logs() as events:
        async with connect.reader(server.url) as reader, connect.writer(server.url) as writer:
            inbox = Inbox(reader, writer, stream, "group", "c", Pace(block_ms=20))
            await inbox.open()
            await put(writer, stream, b"before")
            batches = inbox.batches()
            before = await anext(batches)

            await writer.flushall()
            await put(writer, stream, b"after")
            after = await anext(batches)

    assert [delivery.body for delivery in (*before, *after)] == [b"before", b"after"]
    assert [event["event"] for event in events] == ["history.lost"]
    assert inbox.num_history_lost == 1


async def test_acked_and_pending_survive_a_kill_of_the_server_and_the_reader_comes_back(
    short_directory: Path, run_id: str
) -> None:
    stream = key(run_id, "commands")
    with own_server(short_directory) as server, capture_logs() as events:
        async with connect.reader(server.url) as reader, connect.writer(server.url) as writer:
            inbox, outbox = Inbox(reader, writer, stream, "group", "c", Pace(block_ms=20)), Outbox(writer)
            await inbox.open()
            await put(writer, stream, b"acked", b"pending")
            batches = inbox.batches()
            [acked, pending] = await anext(batches)
            settlement = Settlement()
            settlement.ack(acked)
            await outbox.settle(settlement)

            server.kill()
            server.start()
            async with connect.writer(server.url) as other:
                await put(other, stream, b"new")
            [new] = await anext(batches)
            both = Settlement()
            both.ack(pending)
            both.ack(new)
            left = await drain(Inbox(reader, writer, stream, "group", "c"))
            await outbox.settle(both)

            assert await num_pending(writer, stream) == 0

    assert new.body == b"new"
    assert [delivery.body for delivery in left] == [b"pending", b"new"]
    assert [event["event"] for event in events].count("bus.lost") <= 1


@pytest.mark.usefixtures("no_second_look")
async def test_what_was_delivered_in_a_lost_reply_is_handed_over(
    redis: Redis, redis_url: str, short_directory: Path, run_id: str
) -> None:
    stream = key(run_id, "decisions")
    await put(redis, stream, b"1")

    async with lossy_line(redis_url, short_directory) as (line, url), connect.reader(url) as lossy:
        line.lose = b"XREADGROUP"
        handed = await drain(Inbox(lossy, redis, stream, "group", "c"))

    assert line.num_lost == 1
    assert [(delivery.body, delivery.attempts) for delivery in handed] == [(b"1", 2)]


async def test_it_waits_out_a_server_that_is_gone_and_says_so_once(short_directory: Path, run_id: str) -> None:
    stream = key(run_id, "commands")
    with own_server(short_directory) as server, capture_logs() as events:
        async with connect.reader(server.url) as reader, connect.writer(server.url) as writer:
            await put(writer, stream, b"kept")
            inbox = Inbox(reader, writer, stream, "group", "c")
            server.kill()
            waiting = asyncio.create_task(anext(inbox.batches()))
            while not events:
                await asyncio.wait([waiting], timeout=0.01)
            server.start()

            [kept] = await waiting

    assert kept.body == b"kept"
    assert [event["event"] for event in events] == ["bus.lost", "bus.regained"]


async def test_stop_ends_the_batches(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    inbox = Inbox(redis_reader, redis, key(run_id, "votes"), "group", "c")
    await put(redis, key(run_id, "votes"), b"1")
    handed = []

    async for batch in inbox.batches():
        handed += batch
        inbox.stop()

    assert [delivery.body for delivery in handed] == [b"1"]
