"""Processes that replace the same record take turns once they have met, and ask nothing before."""

from __future__ import annotations

import asyncio

import pytest

from esper.bus.connect import Redis
from esper.bus.turns import Turns

LASTS_MS = 120_000


@pytest.fixture(autouse=True)
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that stands still for seconds, in a turn or after one was met, has lost nothing by that."""
    monkeypatch.setattr("esper.bus.turns.LASTS_MS", LASTS_MS)
    monkeypatch.setattr("esper.bus.turns.SHARED_FOR_S", 120.0)


async def test_alone_nothing_is_asked(redis: Redis, run_id: str) -> None:
    turns = Turns(redis, f"{run_id}:record")

    async with turns.mine():
        taken = await redis.exists(turns.key)

    assert (taken, turns.is_shared) == (0, False)


async def test_after_they_met_one_waits_for_the_other(redis: Redis, run_id: str) -> None:
    first, second = Turns(redis, f"{run_id}:record"), Turns(redis, f"{run_id}:record")
    first.met()
    second.met()
    order: list[str] = []

    async def take(turns: Turns, name: str, entered: asyncio.Event, go_on: asyncio.Event) -> None:
        async with turns.mine():
            order.append(f"{name} begins")
            entered.set()
            await go_on.wait()
            order.append(f"{name} ends")

    begun, end = asyncio.Event(), asyncio.Event()
    holder = asyncio.create_task(take(first, "first", begun, end))
    await begun.wait()
    waiter = asyncio.create_task(take(second, "second", asyncio.Event(), end))
    await redis.ping()
    end.set()
    await asyncio.gather(holder, waiter)

    assert order == ["first begins", "first ends", "second begins", "second ends"]
    assert await redis.exists(first.key) == 0


async def test_a_turn_of_one_that_died_ends_by_itself(redis: Redis, run_id: str) -> None:
    turns = Turns(redis, f"{run_id}:record")
    turns.met()
    await redis.set(turns.key, "another", px=60)

    async with asyncio.timeout(120.0), turns.mine():
        held, left_ms = await redis.get(turns.key), await redis.pttl(turns.key)

    assert held != b"another"
    assert 0 < left_ms <= LASTS_MS


async def test_a_turn_that_another_has_by_now_is_left_to_it(redis: Redis, run_id: str) -> None:
    turns = Turns(redis, f"{run_id}:record")
    turns.met()

    async with turns.mine():
        await redis.set(turns.key, "another")

    assert await redis.get(turns.key) == b"another"
