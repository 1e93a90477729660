"""Nothing that was read is left lying: not by a cancelled task, not by a process that stops, not by a long list."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from esper.bus.connect import Redis
from esper.bus.group.consumer import BUSY, FEWEST, MOST_BYTES, Pace
from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.names import key
from esper.bus.publisher import Publisher
from esper.errors import StaleLeaseError
from tests.bus_kit import bodies, drain, num_pending, put

NUM_ENTRIES = 20_000
PATIENCE_S = 120.0
NEVER_MS = 600_000
"""Beyond any test: what is taken over before that was handed back."""


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


async def echo(inbox: Inbox, outbox: Outbox, answers: str) -> None:
    """Write each body to another stream, in the call that acknowledges it."""
    async for batch in inbox.batches():
        settlement = Settlement()
        for delivery in batch:
            settlement.write(answers, delivery.body)
            settlement.ack(delivery)
        try:
            await outbox.settle(settlement)
        except StaleLeaseError:  # a call that was cut short went through all the same
            inbox.rewind()


async def cancelled_after(task: asyncio.Task[None], delay_s: float) -> None:
    await asyncio.wait([task], timeout=delay_s)
    task.cancel()
    await asyncio.wait([task])


async def until_empty(redis: Redis, stream: str) -> None:
    """Until nothing is pending and everything was read."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        [group] = await redis.xinfo_groups(stream)
        last = await redis.execute_command("XREVRANGE", stream, "+", "-", "COUNT", 1)
        if group["pending"] == 0 and group["last-delivered-id"] == last[0][0]:
            return
    raise AssertionError("entries were left un-run")


async def test_a_task_cancelled_at_any_moment_leaves_nothing_to_whoever_iterates_next(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream, answers, dice = key(run_id, "votes"), key(run_id, "decisions"), random.Random(7)
    inbox, outbox = Inbox(redis_reader, redis, stream, "group", "c", Pace(block_ms=30)), Outbox(redis)
    await inbox.open()
    publisher = Publisher(redis)

    for round_ in range(100):
        task = asyncio.create_task(echo(inbox, outbox, answers))
        await publisher.add_many(stream, numbered(3 * round_, 3 * round_ + 3))
        await cancelled_after(task, dice.choice([0.0, 0.001, 0.003, 0.01, 0.04]) * dice.random())
    last = asyncio.create_task(echo(inbox, outbox, answers))
    await until_empty(redis, stream)
    inbox.stop()
    await last

    assert sorted(await bodies(redis, answers)) == sorted(numbered(0, 300))


async def test_a_read_outlives_the_task_that_waited_for_it(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    stream = key(run_id, "votes")
    inbox = Inbox(redis_reader, redis, stream, "group", "c")
    await inbox.open()

    async def first() -> list[Delivery]:
        return await anext(inbox.batches())

    task = asyncio.create_task(first())
    while not inbox.busy:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await put(redis, stream, b"1")

    assert [delivery.body for delivery in await first()] == [b"1"]


async def test_a_batch_in_hand_when_the_task_was_cancelled_is_handed_over_again(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "votes")
    await put(redis, stream, b"1", b"2")
    inbox = Inbox(redis_reader, redis, stream, "group", "c")
    first = await anext(inbox.batches())

    again = await drain(inbox)
    after = await drain(inbox)

    assert [delivery.body for delivery in again] == [delivery.body for delivery in first] == [b"1", b"2"]
    assert after == []


async def test_what_is_read_ahead_is_one_batch_and_is_handed_over_once(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "telemetry")
    await put(redis, stream, *numbered(0, 500))
    inbox = Inbox(redis_reader, redis, stream, "group", "c", Pace(count=10))
    batches = inbox.batches(until_idle=True)

    first = await anext(batches)
    most_pending = [await num_pending(redis, stream) async for _ in batches]

    assert [delivery.body for delivery in first] == numbered(0, 10)
    assert most_pending[0] <= 10 + 2 * BUSY * 10
    assert most_pending[-1] == 500


@pytest.mark.parametrize(("size", "expected"), [(8, 256 * BUSY), (MOST_BYTES // 70, 64), (MOST_BYTES // 8, FEWEST)])
async def test_of_larger_entries_fewer_are_read_at_once(
    redis: Redis, redis_reader: Redis, run_id: str, size: int, expected: int
) -> None:
    stream = key(run_id, "telemetry")
    await put(redis, stream, *[bytes(size)] * (256 + expected + 1))
    inbox = Inbox(redis_reader, redis, stream, "group", "c")

    num_read = [len(batch) async for batch in inbox.batches(until_idle=True)]

    assert num_read == [256, expected, 1]


async def test_a_stopped_consumer_hands_back_what_it_did_not_handle_and_is_gone(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "telemetry")
    await put(redis, stream, *numbered(0, 400))
    stopped = Inbox(redis_reader, redis, stream, "group", "stopped", Pace(count=10, reclaim_after_ms=60_000))
    batches = stopped.batches()
    handled = await anext(batches)
    settlement = Settlement()
    for delivery in handled:
        settlement.ack(delivery)
    await Outbox(redis).settle(settlement)

    stopped.stop()
    left = [batch async for batch in batches]
    num_released = await stopped.release()
    heir = Inbox(redis_reader, redis, stream, "group", "heir", Pace(reclaim_after_ms=NEVER_MS))
    taken = await drain(heir)

    assert left == []
    assert num_released == 10 * BUSY
    assert sorted(int(delivery.body) for delivery in taken) == list(range(10, 400))
    assert {delivery.attempts for delivery in taken} == {1}
    consumers = [row["name"] for row in await redis.xinfo_consumers(stream, "group")]
    assert b"stopped" not in consumers


async def test_a_consumer_at_work_takes_over_what_another_handed_back_before_it_counts_as_dead(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "votes")
    await put(redis, stream, *numbered(0, 20))
    leaving = Inbox(redis_reader, redis, stream, "group", "leaving", Pace(reclaim_after_ms=NEVER_MS))
    await drain(leaving)
    staying = Inbox(redis_reader, redis, stream, "group", "staying", Pace(reclaim_after_ms=NEVER_MS))
    work = asyncio.create_task(echo(staying, Outbox(redis), key(run_id, "decisions")))

    await leaving.release()
    await until_empty(redis, stream)
    staying.stop()
    await work

    assert await bodies(redis, key(run_id, "decisions")) == numbered(0, 20)


async def test_what_another_took_over_is_not_handed_back(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    stream = key(run_id, "votes")
    [stolen, _] = await put(redis, stream, b"1", b"2")
    leaving = Inbox(redis_reader, redis, stream, "group", "leaving", Pace(reclaim_after_ms=NEVER_MS))
    await drain(leaving)
    await redis.execute_command("XCLAIM", stream, "group", "thief", 0, stolen)

    num_released = await leaving.release()

    [row] = await redis.xpending_range(stream, "group", "-", "+", 10, "thief")
    assert (num_released, row["message_id"]) == (1, stolen.encode())


async def test_in_a_group_of_its_own_nothing_is_handed_back(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    stream = key(run_id, "decisions")
    await put(redis, stream, b"1")
    inbox = Inbox(redis_reader, redis, stream, "worker-0", "worker-0")
    await drain(inbox)

    assert await inbox.release() == 0
    assert [delivery.body for delivery in await drain(Inbox(redis_reader, redis, stream, "worker-0", "worker-0"))] == [
        b"1"
    ]


async def test_a_reclaim_walks_the_part_it_took_and_not_the_whole_list(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "telemetry")
    publisher = Publisher(redis)
    for start in range(0, NUM_ENTRIES, 1000):
        await publisher.add_many(stream, numbered(start, start + 1000))
    await redis.execute_command("XGROUP", "CREATE", stream, "group", "0")
    inbox = Inbox(redis_reader, redis, stream, "group", "c", Pace(reclaim_after_ms=0))
    in_hand = 0
    async for batch in inbox.batches(until_idle=True):
        in_hand += len(batch)
    await redis.config_resetstat()
    await put(redis, stream, *numbered(0, 100))
    await redis.execute_command("XREADGROUP", "GROUP", "group", "dead", "COUNT", 100, "STREAMS", stream, ">")

    taken: list[Delivery] = []
    while len(taken) < 100:  # after a long pass the next one is due a little later
        taken += await drain(inbox)

    calls = (await redis.info("commandstats"))["cmdstat_xpending"]["calls"]
    assert (in_hand, len(taken)) == (NUM_ENTRIES, 100)
    assert calls < 10


async def test_what_is_settled_is_handed_over_again_by_a_server_that_falls_back(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "votes")
    await put(redis, stream, b"1", b"2")
    inbox, outbox = Inbox(redis_reader, redis, stream, "group", "c"), Outbox(redis)
    deliveries = await drain(inbox)
    settlement = Settlement()
    settlement.ack(deliveries[0])
    await outbox.settle(settlement)

    # As a replica has it that never heard of the acknowledgement, and a read that the failover cut short.
    await redis.ask(("XCLAIM", stream, "group", "c", "0", deliveries[0].entry_id, "FORCE", "JUSTID"))
    read = inbox.consumer.next_batch()
    next(read)
    read.close()

    assert [delivery.body for delivery in await drain(inbox)] == [b"1"]


async def test_what_is_remembered_of_settled_entries_stays_small(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream, publisher = key(run_id, "telemetry"), Publisher(redis)
    for start in range(0, NUM_ENTRIES, 1000):
        await publisher.add_many(stream, numbered(start, start + 1000))
    inbox, outbox = Inbox(redis_reader, redis, stream, "group", "c"), Outbox(redis)
    await inbox.open()
    most = 0

    async for batch in inbox.batches(until_idle=True):
        settlement = Settlement()
        for delivery in batch:
            settlement.ack(delivery)
        await outbox.settle(settlement)
        most = max(most, len(inbox.pending._held))

    assert 0 <= most <= 2 * 1024


async def test_many_are_added_in_one_round_trip_in_order(redis: Redis, run_id: str) -> None:
    stream = key(run_id, "telemetry")

    ids = await Publisher(redis).add_many(stream, numbered(0, 300))

    kept = await redis.execute_command("XRANGE", stream, "-", "+")
    assert [entry_id.encode() for entry_id in ids] == [entry_id for entry_id, _ in kept]
    assert await Publisher(redis).add_many(stream, []) == []
