"""An aggregator that lives takes in each packet once more where Redis has lost it, and not where it lost a lease."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import pytest

from esper.bus.connect import Redis
from esper.bus.group.groups import group_of
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.names import key
from esper.bus.tail import newest_id
from esper.runtime.aggregator.loop import Aggregator
from tests.bus_kit import num_pending, until
from tests.packet_kit import framed, num_packets, packets
from tests.tiers import PausedOutbox, Tiers, standing_still


@pytest.mark.parametrize("tier", ["regional", "global"])
async def test_what_it_met_before_and_redis_has_lost_counts_though_nothing_else_comes(tiers: Tiers, tier: str) -> None:
    await tiers.say("north", framed(packets(320)))
    if tier == "global":
        await tiers.regional("north").run(until_idle=True)
    lives, source, target = places(tiers, tier)
    lives.clock = time.monotonic
    for inbox in lives.inboxes:
        await inbox.open()
    before = await stored(tiers)
    stopping = asyncio.Event()
    running = asyncio.create_task(lives.run(stopping))
    await until(partial(is_through, tiers.redis, source, tier))

    await fall_back(tiers, before)
    await until(partial(is_through, tiers.redis, source, tier))
    stopping.set()
    await running

    assert num_packets(await tiers.aggregates(target)) == 320


class FallsBack(Outbox):
    """To a server that falls back as soon as it has written an aggregate, to what it held before."""

    def __init__(self, tiers: Tiers) -> None:
        super().__init__(tiers.redis)
        self._tiers, self.fell_back = tiers, asyncio.Event()

    async def settle(self, settlement: Settlement) -> list[str]:
        if self.fell_back.is_set() or not settlement.writes:
            return await super().settle(settlement)
        before = await stored(self._tiers)
        written = await super().settle(settlement)
        await fall_back(self._tiers, before)
        self.fell_back.set()
        return written


async def test_nothing_is_acknowledged_on_a_server_that_has_lost_what_it_was_counted_in(tiers: Tiers) -> None:
    await tiers.say("north", framed(packets(320)))
    await tiers.regional("north").run(until_idle=True)
    outbox = FallsBack(tiers)
    lives = tiers.global_(["north"], outbox=outbox)
    lives.clock = time.monotonic
    await lives.inboxes[0].open()
    stopping = asyncio.Event()
    running = asyncio.create_task(lives.run(stopping))
    await outbox.fell_back.wait()

    await until(partial(is_through, tiers.redis, tiers.region("north", "regional"), "global"))
    stopping.set()
    await running

    assert num_packets(await tiers.said_globally()) == (await tiers.totals()).counted == 320


class AbsolvedLate(Inbox):
    """Reads on for as long as the test likes, until it has said that what it held counts as before."""

    def __init__(self, like: Inbox) -> None:
        super().__init__(like.reader, like.writer, *like.source, like.consumer.pace)
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    async def absolve(self) -> None:
        await super().absolve()
        self.reached.set()
        await self.go_on.wait()


async def test_what_is_read_while_a_lost_lease_is_answered_is_taken_in_once(tiers: Tiers, redis: Redis) -> None:
    telemetry, outbox = tiers.region("north", "telemetry"), PausedOutbox(redis)
    made = tiers.regional("north", "paused")
    inbox = AbsolvedLate(made.inboxes[0])
    reads_on = Aggregator(made.tier, made.pipeline, [inbox], outbox, made.target, standing_still)
    stopping = asyncio.Event()
    await tiers.say("north", framed(packets(32)))
    running = asyncio.create_task(reads_on.run(stopping))
    await outbox.reached.wait()
    await redis.xautoclaim(telemetry, "regional", "second", 0, "0-0")

    outbox.go_on.set()
    await inbox.reached.wait()
    await tiers.say("north", framed(packets(40)[32:]))
    await until(partial(has_queued, reads_on))
    inbox.go_on.set()
    await until(partial(is_read_again, inbox))
    stopping.set()
    await running

    told = await tiers.said_by("north")
    assert (num_packets(told), sum(each.num_duplicates for each in told)) == (8, 0)


async def has_queued(aggregator: Aggregator) -> bool:
    return not aggregator._queue.empty()


async def is_read_again(inbox: Inbox) -> bool:
    """Whether all that is pending for it was handed over twice."""
    rows = await inbox.writer.xpending_range(*inbox.source[:2], "-", "+", 100, inbox.source.consumer)
    return all(row["times_delivered"] == 2 for row in rows)


def places(tiers: Tiers, tier: str) -> tuple[Aggregator, str, str]:
    """An aggregator of this tier, where it reads and where it writes."""
    north = partial(tiers.region, "north")
    if tier == "regional":
        return tiers.regional("north"), north("telemetry"), north("regional")
    return tiers.global_(["north"]), north("regional"), key(tiers.run_id, "global")


async def is_through(redis: Redis, stream: str, group: str) -> bool:
    """Whether the group has read and settled all that there is."""
    facts = await group_of(redis, stream, group)
    newest = await newest_id(redis, stream)
    return (
        facts is not None
        and facts["last-delivered-id"].decode() == newest
        and await num_pending(redis, stream, group) == 0
    )


async def stored(tiers: Tiers) -> dict[bytes, bytes]:
    """All that Redis holds of the run."""
    return {name: await tiers.redis.execute_command("DUMP", name) for name in await keys_of(tiers)}


async def fall_back(tiers: Tiers, before: dict[bytes, bytes]) -> None:
    """What a crash does to all that was not on disk yet."""
    transaction: Any = tiers.redis.pipeline(transaction=True)  # in between readers would begin groups anew
    transaction.delete(*await keys_of(tiers))
    for name, dump in before.items():
        transaction.restore(name, 0, dump)
    await transaction.execute()


async def keys_of(tiers: Tiers) -> list[bytes]:
    return [name async for name in tiers.redis.scan_iter(match=f"esper:{{{tiers.run_id}*")]
