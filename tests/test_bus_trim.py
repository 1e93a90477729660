"""Trimming frees only what no group needs any more, and where nobody reads by group what is too old or too much."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from secrets import token_hex
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from esper.bus import connect
from esper.bus.connect import Redis, server_ms
from esper.bus.group.delivery import entries_of
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.names import key
from esper.bus.upkeep.trim import Retention, retain, trim
from tests.bus_kit import drain, put

FOR_EVER = Retention(1e12, 10**9)
GROUPS = ("one", "two", "three")
ACTS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 300), st.just(0)),
    st.tuples(st.sampled_from(GROUPS), st.integers(1, 250), st.integers(0, 250)),
    st.tuples(st.just("trim"), st.just(0), st.just(0)),
    st.tuples(st.just("retain"), st.integers(0, 200), st.just(0)),
)


async def ids_of(redis: Redis, stream: str) -> list[str]:
    return [entry_id.decode() for entry_id, _ in await redis.execute_command("XRANGE", stream, "-", "+")]


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

    assert (untouched, trimmed) == (0, 700)
    assert await ids_of(redis, stream) == ids[700:]


class Reference:
    """What must still be there, by a plain reading of the rule: everything unread or pending in any group."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.given = dict.fromkeys(GROUPS, 0)
        self.pending: dict[str, set[str]] = {name: set() for name in GROUPS}

    @property
    def needed(self) -> set[str]:
        unread = {entry_id for name in GROUPS for entry_id in self.ids[self.given[name] :]}
        return unread.union(*self.pending.values())


async def act(redis: Redis, stream: str, reference: Reference, one: Sequence[Any]) -> None:
    what, first, second = one
    match what:
        case "add":
            async with redis.pipeline(transaction=False) as pipe:
                for _ in range(first):
                    pipe.xadd(stream, {"m": b"x" * 20})
                reference.ids += [entry_id.decode() for entry_id in await pipe.execute()]
        case "trim":
            await trim(redis, stream, GROUPS)
        case "retain":
            await retain(redis, stream, Retention(0.0, first), await server_ms(redis) + 1_000)
        case group:
            reply = await redis.ask(("XREADGROUP", "GROUP", group, "c", "COUNT", first, "STREAMS", stream, ">"))
            got = [entry_id.decode() for entry_id, _ in entries_of(reply)]
            reference.given[group] += len(got)
            reference.pending[group].update(got)
            if acked := sorted(reference.pending[group])[-second:] if second else []:
                await redis.xack(stream, group, *acked)
                reference.pending[group].difference_update(acked)


async def acted(url: str, acts: Sequence[Any]) -> tuple[set[str], set[str]]:
    """What is needed in the end, and what is there."""
    stream, reference = key(f"t-{token_hex(4)}", "votes"), Reference()
    async with connect.writer(url) as redis:
        for group in GROUPS:
            await redis.xgroup_create(stream, group, id="0", mkstream=True)
        for one in acts:
            await act(redis, stream, reference, one)
        there = set(await ids_of(redis, stream))
        await redis.delete(stream)
    return reference.needed, there


@settings(max_examples=60, deadline=None)
@given(acts=st.lists(ACTS, max_size=25))
def test_whatever_groups_and_trims_do_nothing_unread_or_pending_goes(redis_url: str, acts: Sequence[Any]) -> None:
    needed, there = asyncio.run(acted(redis_url, acts))

    assert needed <= there


async def test_more_than_one_call_can_free_is_freed_to_the_last_entry(redis: Redis, run_id: str) -> None:
    stream = key(run_id, "votes")
    await redis.xgroup_create(stream, "coordinator", id="0", mkstream=True)
    async with redis.pipeline(transaction=False) as pipe:
        for _ in range(25_050):
            pipe.xadd(stream, {"m": b""})
        ids = await pipe.execute()
    await redis.xgroup_setid(stream, "coordinator", ids[-1])

    trimmed = await trim(redis, stream, ["coordinator"])

    assert trimmed == 25_049
    assert await ids_of(redis, stream) == [ids[-1].decode()]


async def test_while_a_group_that_must_be_there_is_missing_nothing_goes(redis: Redis, run_id: str) -> None:
    stream = key(run_id, "votes")
    await put(redis, stream, *[b"1"] * 10)
    await redis.xgroup_create(stream, "someone", id="$")

    assert await trim(redis, stream, ["coordinator"]) == 0
    assert len(await ids_of(redis, stream)) == 10


async def test_what_was_settled_a_moment_ago_is_left_for_plain_readers(redis: Redis, run_id: str) -> None:
    stream = key(run_id, "heartbeats")
    await redis.xadd(stream, {"m": b"1"}, id="1-1")
    await put(redis, stream, *[b"1"] * 10)
    await redis.xgroup_create(stream, "coordinator", id="$")

    trimmed = await trim(redis, stream, before_ms=await server_ms(redis) - 60_000)

    assert trimmed == 1
    assert len(await ids_of(redis, stream)) == 10


async def test_a_stream_without_a_group_or_without_entries_is_left_alone(redis: Redis, run_id: str) -> None:
    await put(redis, key(run_id, "receipts"), b"1")

    assert await trim(redis, key(run_id, "receipts"), before_ms=2**52) == 0
    assert await trim(redis, key(run_id, "nothing")) == 0


@pytest.mark.parametrize(
    ("kept", "left"), [(FOR_EVER, 1_001), (Retention(3_600, 10**9), 1_000), (Retention(1e12, 10), 10)]
)
async def test_what_nobody_reads_by_group_is_bounded_by_age_and_number(
    redis: Redis, run_id: str, kept: Retention, left: int
) -> None:
    stream = key(run_id, "dead")
    await redis.xadd(stream, {"m": b"1"}, id="1-1")
    ids = await put(redis, stream, *[b"1"] * 1_000)

    await retain(redis, stream, kept, await server_ms(redis))

    there = await ids_of(redis, stream)
    assert (len(there), there[-1]) == (left, ids[-1])


async def test_retention_too_spares_what_somebody_has_yet_to_read_by_group(redis: Redis, run_id: str) -> None:
    stream = key(run_id, "dead")
    await redis.xgroup_create(stream, "audit", id="0", mkstream=True)
    await put(redis, stream, *[b"1"] * 100)

    await retain(redis, stream, Retention(0.0, 10), await server_ms(redis) + 1_000)

    assert len(await ids_of(redis, stream)) == 100
