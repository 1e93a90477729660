"""What only lost its lease is no poison; what kills its aggregator is, alone, after a bounded number of deaths."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from esper.bus.connect import Redis
from esper.bus.group.consumer import Pace
from esper.bus.group.inbox import Inbox
from esper.bus.names import key
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened
from esper.narset.zero_copy import Packed
from esper.runtime.aggregator.loop import Aggregator
from tests.bus_kit import drain, num_pending, put
from tests.tiers import PausedOutbox, Tiers

GROUP = "regional"
NUM_FRAMES = 40
KILLS = 7  # the frame at which an aggregator dies


class KilledError(Exception):
    """As good as a signal to whoever folds this."""


def frames(number: int) -> list[pb.TelemetryFrame]:
    """One packet each, numbered from 1."""
    level = pb.TelemetryLevel.TELEMETRY_INFO
    return [
        pb.TelemetryFrame(
            version=1,
            source="worker-0",
            incarnation=1,
            region="north",
            packets=[
                pb.TelemetryPacket(version=1, sequence=each, timestamp_ns=each, level=level, values={"loss": 1.0})
            ],
        )
        for each in range(1, number + 1)
    ]


def sequence_in(opened: Opened) -> int:
    """Of the first packet in a frame, parsed or not."""
    match opened.message:
        case Packed() as packed:
            return packed.sequences[0]
        case pb.TelemetryFrame() as frame:
            return frame.packets[0].sequence
    raise AssertionError(opened.message)


def mortal(aggregator: Aggregator) -> Aggregator:
    """The same; it dies of one frame."""
    fold = aggregator.pipeline.fold

    def folding(opened: Opened, now_s: float) -> None:
        if sequence_in(opened) == KILLS:
            raise KilledError
        fold(opened, now_s)

    aggregator.pipeline = replace(aggregator.pipeline, fold=folding)
    return aggregator


async def delivered(redis: Redis, stream: str, group: str = GROUP) -> list[int]:
    """How often each pending entry was handed over, by the server's count."""
    rows = await redis.xpending_range(stream, group, "-", "+", 1000)
    return [int(row["times_delivered"]) for row in rows]


async def set_delivered(
    redis: Redis, stream: str, entry_ids: Sequence[str], times: int, consumer: str = "gone"
) -> None:
    """As if this consumer, by default one that is gone, had been handed these so often."""
    claim = ("XCLAIM", stream, GROUP, consumer, 0, *entry_ids, "TIME", 1, "RETRYCOUNT", times)
    await redis.execute_command(*claim)


def slow_reader(redis: Redis, reader: Redis, stream: str, name: str) -> Inbox:
    """One whose reader does not come round to what it is handed; the others take it over at once."""
    inbox = Inbox(reader, redis, stream, GROUP, name, Pace(reclaim_after_ms=0))
    inbox.try_apart()
    return inbox


async def suspect(redis: Redis, inbox: Inbox) -> str:
    """An entry that this consumer holds after two deliveries; its id."""
    await inbox.open()
    [entry_id] = await put(redis, inbox.source.stream, b"1")
    await drain(inbox)
    await set_delivered(redis, inbox.source.stream, [entry_id], 2)
    return entry_id


async def test_what_aggregators_that_live_were_too_slow_for_is_folded_at_last(
    tiers: Tiers, redis: Redis, redis_reader: Redis
) -> None:
    telemetry = tiers.region("north", "telemetry")
    await tiers.say("north", frames(NUM_FRAMES))
    for number in range(9):
        await drain(slow_reader(redis, redis_reader, telemetry, f"slow-{number}"))

    await tiers.regional("north", reclaim_after_ms=0).run(until_idle=True)

    assert sum(said.num_packets for said in await tiers.said_by("north")) == NUM_FRAMES
    assert await redis.exists(key(tiers.run_id, "dead")) == 0


async def test_what_kills_its_aggregator_is_set_aside_alone_after_five_deaths(tiers: Tiers, redis: Redis) -> None:
    await tiers.say("north", frames(NUM_FRAMES))
    num_deaths, ended = 0, False

    while not ended:
        try:
            await mortal(tiers.regional("north", f"a{num_deaths}", reclaim_after_ms=0)).run(until_idle=True)
            ended = True
        except KilledError:
            num_deaths += 1

    assert num_deaths == 5
    assert sum(said.num_packets for said in await tiers.said_by("north")) == NUM_FRAMES - 1
    [(_, letter)] = await redis.execute_command("XRANGE", key(tiers.run_id, "dead"), "-", "+")
    assert (letter[b"reason"], letter[b"attempts"], b"m" in letter) == (b"poison", b"5", True)
    assert await num_pending(redis, tiers.region("north", "telemetry"), GROUP) == 0


async def test_what_is_in_hand_is_settled_before_a_suspect_is_tried(tiers: Tiers, redis: Redis) -> None:
    telemetry = tiers.region("north", "telemetry")
    await tiers.say("north", frames(KILLS))
    await drain(slow_reader(redis, tiers.reader, telemetry, "gone"))
    [(suspect, _)] = await redis.execute_command("XREVRANGE", telemetry, "+", "-", "COUNT", 1)
    await set_delivered(redis, telemetry, [suspect.decode()], 2)

    with pytest.raises(KilledError):
        await mortal(tiers.regional("north", reclaim_after_ms=0)).run(until_idle=True)

    assert await delivered(redis, telemetry) == [3]
    assert sum(said.num_packets for said in await tiers.said_by("north")) == KILLS - 1


async def test_a_lost_lease_takes_nothing_from_the_chances_of_an_entry(tiers: Tiers, redis: Redis) -> None:
    telemetry = tiers.region("north", "telemetry")
    await tiers.say("north", frames(NUM_FRAMES))
    outbox = PausedOutbox(redis)
    paused = asyncio.create_task(tiers.regional("north", "paused", outbox=outbox).run(until_idle=True))
    await outbox.reached.wait()
    await redis.xautoclaim(telemetry, GROUP, "second", 0, "0-0", count=1000)  # which counts as a delivery
    before = await delivered(redis, telemetry)

    outbox.go_on.set()
    await paused

    assert (set(before), await delivered(redis, telemetry)) == ({2}, [1] * NUM_FRAMES)
    rows = await redis.xpending_range(telemetry, GROUP, "-", "+", 1000, "second")
    assert len(rows) == NUM_FRAMES


async def test_read_again_by_one_that_lives_entries_stay_in_company(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "telemetry")
    await put(redis, stream, b"1", b"2", b"3")
    inbox = slow_reader(redis, redis_reader, stream, "c")
    await drain(inbox)

    met = []
    for _ in range(8):
        await inbox.absolve()
        inbox.rewind()
        met.append([[each.attempts for each in batch] async for batch in inbox.batches(until_idle=True)])

    assert met == [[[2, 2, 2]]] * 8


async def test_what_never_ends_within_its_lease_alone_ends_as_poison(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "telemetry")
    inbox = slow_reader(redis, redis_reader, stream, "c")
    await suspect(redis, inbox)

    met = []
    for _ in range(4):
        inbox.rewind()
        [delivery] = await drain(slow_reader(redis, redis_reader, stream, "c"))
        met.append((delivery.attempts, delivery.spent))
        if not delivery.spent:
            assert await inbox.begin(delivery)
        await inbox.absolve()

    assert met == [(3, False), (4, False), (5, False), (6, True)]


async def test_what_was_taken_over_before_it_was_begun_is_not_tried(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = key(run_id, "telemetry")
    first = slow_reader(redis, redis_reader, stream, "first")
    await suspect(redis, first)
    [waiting] = await drain(slow_reader(redis, redis_reader, stream, "first"))

    [taken] = await drain(slow_reader(redis, redis_reader, stream, "second"))

    assert (taken.attempts, await first.begin(waiting)) == (3, False)
    assert await delivered(redis, stream) == [2]


async def test_a_suspect_that_is_gone_is_not_tried(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    stream = key(run_id, "telemetry")
    inbox = slow_reader(redis, redis_reader, stream, "c")
    entry_id = await suspect(redis, inbox)
    [waiting] = await drain(slow_reader(redis, redis_reader, stream, "c"))
    await redis.xdel(stream, entry_id)

    is_begun = await inbox.begin(waiting)

    assert (is_begun, await num_pending(redis, stream, GROUP), inbox.pending.num_vanished) == (False, 0, 1)


async def test_what_another_took_over_meanwhile_is_left_to_it(tiers: Tiers, redis: Redis) -> None:
    telemetry = tiers.region("north", "telemetry")
    await tiers.say("north", frames(2))
    await drain(slow_reader(redis, tiers.reader, telemetry, "paused"))
    [(_, _), (suspect, _)] = await redis.execute_command("XRANGE", telemetry, "-", "+")
    await set_delivered(redis, telemetry, [suspect.decode()], 2, "paused")
    outbox = PausedOutbox(redis)  # of one that takes nothing over: else it would have the suspect back meanwhile
    paused = asyncio.create_task(tiers.regional("north", "paused", outbox=outbox).run(until_idle=True))
    await outbox.reached.wait()

    await set_delivered(redis, telemetry, [suspect.decode()], 2)
    outbox.go_on.set()
    await paused

    assert outbox.refused == []
    assert [row["message_id"] for row in await redis.xpending_range(telemetry, GROUP, "-", "+", 9, "gone")] == [suspect]
