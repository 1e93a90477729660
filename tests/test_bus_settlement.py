"""A settlement is carried out whole, once, and only by who still holds the entries."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from structlog.testing import capture_logs

from esper.bus import connect
from esper.bus.connect import Redis
from esper.bus.group.consumer import Pace
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import NUM_SEEN, RepeatedError, Settlement
from esper.bus.names import key, new_run_id
from esper.errors import BusError, RefusedError, StaleLeaseError
from esper.leyline import contracts as pb
from esper.leyline.entries import LAST_ID
from tests.bus_kit import DEADLINE_S, bodies, drain, lossy_line, num_pending, put


async def test_a_consumer_paused_past_its_reclaim_cannot_settle(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    stream, answers = key(run_id, "votes"), key(run_id, "decisions")
    await put(redis, stream, b"vote")
    [in_hand] = await drain(Inbox(redis_reader, redis, stream, "group", "paused"))
    [taken_over] = await drain(Inbox(redis_reader, redis, stream, "group", "other", Pace(reclaim_after_ms=0)))

    late = Settlement()
    late.ack(in_hand)
    late.write(answers, b"twice")
    late.put(key(run_id, "windows"), {"paused": b"1"})
    with pytest.raises(StaleLeaseError) as refused:
        await Outbox(redis).settle(late)

    assert refused.value.entry_id == in_hand.entry_id == taken_over.entry_id
    assert await redis.exists(answers, key(run_id, "windows")) == 0
    assert await num_pending(redis, stream) == 1


async def test_one_stale_entry_among_many_leaves_everything_unwritten(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream, answers = key(run_id, "votes"), key(run_id, "decisions")
    await put(redis, stream, *(b"%d" % number for number in range(20)))
    deliveries = await drain(Inbox(redis_reader, redis, stream, "group", "c"))
    await redis.xack(stream, "group", deliveries[13].entry_id)

    settlement = Settlement()
    for delivery in deliveries:
        settlement.ack(delivery)
    settlement.write(answers, b"answer")
    with pytest.raises(StaleLeaseError, match=deliveries[13].entry_id):
        await Outbox(redis).settle(settlement)

    assert await redis.exists(answers) == 0
    assert await num_pending(redis, stream) == 19


async def test_entries_of_several_streams_settle_together_with_what_is_written(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    votes, commands, decisions, windows = (key(run_id, name) for name in ("votes", "commands", "decisions", "windows"))
    await put(redis, votes, b"v")
    await put(redis, commands, b"c")
    settlement = Settlement()
    for stream in (votes, commands):
        for delivery in await drain(Inbox(redis_reader, redis, stream, "group", "c")):
            settlement.ack(delivery)
            settlement.ack(delivery)

    settlement.write(decisions, b"first")
    settlement.write(decisions, b"second")
    settlement.put(windows, {"producer": b"\x00\xff"})
    settlement.expect(windows, "producer", None)
    ids = await Outbox(redis).settle(settlement)

    assert await redis.execute_command("XRANGE", decisions, "-", "+") == [
        (ids[0].encode(), {b"m": b"first"}),
        (ids[1].encode(), {b"m": b"second"}),
    ]
    assert await redis.hget(windows, "producer") == b"\x00\xff"
    assert await num_pending(redis, votes) == await num_pending(redis, commands) == 0


@pytest.mark.parametrize(("before", "expected"), [(b"2", b"1"), (b"2", None), (None, b"1")])
async def test_an_expectation_that_does_not_hold_refuses_the_whole(
    redis: Redis, run_id: str, before: bytes | None, expected: bytes | None
) -> None:
    totals, answers = key(run_id, "totals"), key(run_id, "global")
    if before is not None:
        await redis.hset(totals, "generation", before)

    settlement = Settlement()
    settlement.expect(totals, "generation", expected)
    settlement.write(answers, b"sum")
    with pytest.raises(StaleLeaseError):
        await Outbox(redis).settle(settlement)

    assert await redis.exists(answers) == 0


async def test_a_key_of_the_wrong_type_is_named_and_nothing_is_written(redis: Redis, run_id: str) -> None:
    good, bad = key(run_id, "decisions"), key(run_id, "receipts")
    await redis.set(bad, "someone else's")

    settlement = Settlement()
    settlement.write(good, b"1")
    settlement.write(bad, b"2")
    with pytest.raises(BusError, match=r"receipts holds a string; expected a stream"):
        await Outbox(redis).settle(settlement)

    assert await redis.exists(good) == 0


async def test_a_settlement_waits_out_a_stream_without_an_id_left_and_writes_nothing_twice(
    redis: Redis, run_id: str
) -> None:
    good, full = key(run_id, "decisions"), key(run_id, "receipts")
    await redis.xadd(full, {"m": b"junk"}, id=LAST_ID)
    settlement = Settlement()
    settlement.write(good, b"1")
    settlement.write(full, b"2")

    with capture_logs() as told:
        settling = asyncio.create_task(Outbox(redis).settle(settlement))
        async with asyncio.timeout(DEADLINE_S):
            while not redis.outage.said:
                await asyncio.sleep(0)
        before = await bodies(redis, good)
        await redis.xdel(full, LAST_ID)
        await redis.execute_command("XSETID", full, "1-0")
        written = await settling

    assert (before, await bodies(redis, good), await bodies(redis, full)) == ([], [b"1"], [b"2"])
    assert len(written) == 2
    assert [each["event"] for each in told] == ["bus.lost", "bus.regained"]


async def test_more_entries_than_one_call_can_unpack_settle_around_those_still_held(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "telemetry")
    await put(redis, stream, *([b"row"] * 2_500))
    deliveries = await drain(Inbox(redis_reader, redis, stream, "group", "c"))

    settlement = Settlement()
    for delivery in deliveries[::2]:
        settlement.ack(delivery)
    await Outbox(redis).settle(settlement)

    assert await num_pending(redis, stream) == 1_250


@pytest.mark.parametrize("with_ack", [True, False])
async def test_a_reply_that_is_lost_does_not_write_twice(
    redis: Redis, redis_reader: Redis, redis_url: str, short_directory: Path, run_id: str, with_ack: bool
) -> None:
    stream, answers = key(run_id, "votes"), key(run_id, "decisions")
    await put(redis, stream, b"vote")
    settlement = Settlement()
    for delivery in await drain(Inbox(redis_reader, redis, stream, "group", "c")):
        if with_ack:
            settlement.ack(delivery)
    settlement.write(answers, b"once")

    async with lossy_line(redis_url, short_directory) as (line, url), connect.writer(url) as lossy:
        await connect.wait_ready(lossy)
        line.lose = b"EVAL"
        [entry_id] = await Outbox(lossy).settle(settlement)

    assert line.num_lost == 1
    assert await redis.execute_command("XRANGE", answers, "-", "+") == [(entry_id.encode(), {b"m": b"once"})]


async def test_a_rejected_message_is_dead_lettered_with_what_is_known_of_it(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream, junk = key(run_id, "commands"), bytes(range(200))
    [entry_id] = await put(redis, stream, junk)
    [delivery] = await drain(Inbox(redis_reader, redis, stream, "group", "c"))

    settlement = Settlement()
    settlement.reject(delivery, RefusedError(pb.ReasonCode.REASON_BAD_SEAL, "seal does not fit"))
    await Outbox(redis).settle(settlement)

    [(_, letter)] = await redis.execute_command("XRANGE", key(run_id, "dead"), "-", "+")
    assert letter == {
        b"reason": b"bad_seal",
        b"detail": b"seal does not fit",
        b"stream": stream.encode(),
        b"group": b"group",
        b"consumer": b"c",
        b"entry_id": entry_id.encode(),
        b"attempts": b"1",
        b"size": b"200",
        b"sha256": hashlib.sha256(junk).hexdigest().encode(),
        b"head": junk[:64],
    }
    assert await num_pending(redis, stream) == 0


async def test_what_is_dropped_leaves_the_stream_and_a_group_that_holds_it_settles_around_it(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "commands")
    await put(redis, stream, b"first", b"junk", b"last")
    judged = await drain(Inbox(redis_reader, redis, stream, "judge", "c"))
    held = await drain(Inbox(redis_reader, redis, stream, "worker", "c"))

    settlement, around = Settlement(), Settlement()
    settlement.ack(judged[0])
    settlement.drop(judged[1])
    settlement.ack(judged[2])
    await Outbox(redis).settle(settlement)
    for delivery in held:
        around.ack(delivery)
    await Outbox(redis).settle(around)

    assert await bodies(redis, stream) == [b"first", b"last"]
    assert [await num_pending(redis, stream, group) for group in ("judge", "worker")] == [0, 0]


async def test_a_refused_settlement_deletes_nothing_and_goes_through_without_what_it_gave_up(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "commands")
    await put(redis, stream, b"taken", b"junk")
    taken, junk = await drain(Inbox(redis_reader, redis, stream, "group", "c"))
    await redis.xack(stream, "group", taken.entry_id)

    settlement = Settlement()
    settlement.drop(taken)
    settlement.drop(junk)
    with pytest.raises(StaleLeaseError) as refused:
        await Outbox(redis).settle(settlement)
    before = await bodies(redis, stream)
    settlement.give_up(refused.value)
    await Outbox(redis).settle(settlement)

    assert before == [b"taken", b"junk"]
    assert await bodies(redis, stream) == [b"taken"]


async def test_an_empty_value_deletes_a_field(redis: Redis, run_id: str) -> None:
    windows = key(run_id, "windows")
    await redis.hset(windows, mapping={"kept": b"1", "gone": b"2", "changed": b"3"})

    settlement = Settlement()
    settlement.put(windows, {"gone": b"", "changed": b"4", "never": b""})
    await Outbox(redis).settle(settlement)

    assert await Outbox(redis).recall(windows) == {b"kept": b"1", b"changed": b"4"}


async def test_messages_that_took_effect_before_are_named_and_nothing_is_written(redis: Redis, run_id: str) -> None:
    series, answers = key(run_id, "seen:group:p"), key(run_id, "decisions")
    before = [1, 2, 70, NUM_SEEN - 1, NUM_SEEN]
    first, second, third = Settlement(), Settlement(), Settlement()
    for number in before:
        first.once(series, number)
    await Outbox(redis).settle(first)

    for number in range(60, 90):
        second.once(series, number)
    second.once(series, NUM_SEEN)
    second.write(answers, b"twice")
    with pytest.raises(RepeatedError) as refused:
        await Outbox(redis).settle(second)
    for number in (0, 3, 69, 71, NUM_SEEN - 2, NUM_SEEN + 1):
        third.once(series, number)
    third.write(answers, b"once")
    await Outbox(redis).settle(third)

    assert refused.value.messages == {(series, 70), (series, NUM_SEEN)}
    assert await bodies(redis, answers) == [b"once"]


@given(batches=st.lists(st.frozensets(st.integers(0, 3 * NUM_SEEN), min_size=1, max_size=40), max_size=6))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_what_took_effect_is_what_was_settled(redis_url: str, batches: list[frozenset[int]]) -> None:
    series, settled = key(new_run_id("test"), "seen:group:p"), set[int]()
    async with connect.writer(redis_url) as redis:
        for batch in batches:
            settlement = Settlement()
            for number in batch:
                settlement.once(series, number)
            try:
                await Outbox(redis).settle(settlement)
                refused = set[int]()
            except RepeatedError as error:
                refused = {number for _, number in error.messages}
            assert refused == batch & settled
            settled |= set() if refused else batch


async def test_an_empty_settlement_asks_nothing_of_the_server(redis: Redis, run_id: str) -> None:
    assert await Outbox(redis).settle(Settlement()) == []
    assert await bodies(redis, key(run_id, "decisions")) == []
