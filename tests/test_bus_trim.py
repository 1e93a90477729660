"""Trimming frees only what no group needs any more."""

from __future__ import annotations

from esper.bus.connect import Redis
from esper.bus.inbox import Inbox
from esper.bus.names import key
from esper.bus.outbox import Outbox
from esper.bus.settlement import Settlement
from esper.bus.trim import trim
from tests.bus_kit import drain, put


async def test_nothing_unread_or_pending_in_any_group_is_trimmed(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "telemetry")
    ids = await put(redis, stream, *([b"row"] * 1_000))
    slow = Inbox(redis_reader, redis, stream, "slow", "c")
    await slow.open()
    untouched = await trim(redis, stream)

    for inbox, first_pending in ((slow, 700), (Inbox(redis_reader, redis, stream, "fast", "c"), 1_000)):
        settlement = Settlement()
        for delivery in (await drain(inbox))[:first_pending]:
            settlement.ack(delivery)
        await Outbox(redis).settle(settlement)
    trimmed = await trim(redis, stream)

    left = [entry_id.decode() for entry_id, _ in await redis.execute_command("XRANGE", stream, "-", "+")]
    assert untouched == 0
    assert 0 < trimmed <= 700
    assert left == ids[trimmed:]


async def test_a_stream_without_a_group_or_without_entries_is_left_alone(redis: Redis, run_id: str) -> None:
    await put(redis, key(run_id, "receipts"), b"1")

    assert await trim(redis, key(run_id, "receipts")) == 0
    assert await trim(redis, key(run_id, "nothing")) == 0
