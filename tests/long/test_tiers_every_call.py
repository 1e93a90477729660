"""A tier that dies before or after any one of its calls to Redis: the next one counts each packet once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from esper.bus import connect
from esper.runtime.aggregator import loop
from esper.runtime.aggregator.loop import Aggregator
from tests.bus_kit import num_pending
from tests.packet_kit import framed, num_packets, packets
from tests.tiers import Tiers

NUM_PACKETS = 640
"""In frames of 20, and in 20 aggregates: two batches of either, each settled by itself."""
MOST_CALLS = 200


class KilledError(BaseException):
    """Nobody handles it: a process that was killed does nothing more."""


class Fate:
    """Ends whoever makes one call more than `left`: before it is sent, or once Redis has carried it out."""

    def __init__(self, left: int, *, hears_nothing: bool) -> None:
        self.left, self._hears_nothing = left, hears_nothing

    def of(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def made(*words: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left >= 0:
                return await call(*words, **options)
            if self.left == -1 and self._hears_nothing:
                await call(*words, **options)
            raise KilledError

        return made


@pytest.mark.parametrize("by_slot", [False, True], ids=["one server", "as a Cluster"])
@pytest.mark.parametrize("hears_nothing", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("tier", ["regional", "global"])
async def test_each_packet_counts_once_whichever_call_was_its_last(
    tiers: Tiers, redis_url: str, monkeypatch: pytest.MonkeyPatch, tier: str, hears_nothing: bool, by_slot: bool
) -> None:
    monkeypatch.setattr(connect.Redis, "by_slot", by_slot)
    monkeypatch.setattr(loop, "MOST_IN_HAND", 1)
    for number in range(MOST_CALLS):
        tiers = replace(tiers, run_id=f"{tiers.run_id.partition('.')[0]}.{number}")
        await tiers.say("north", framed(packets(NUM_PACKETS), most=20))
        if tier == "global":
            await tiers.regional("north").run(until_idle=True)
        fate = Fate(number, hears_nothing=hears_nothing)
        async with connect.client(redis_url, 10.0) as writer, connect.client(redis_url, None) as reader:
            mortal = replace(tiers, redis=writer, reader=reader)
            for client in (writer, reader):
                for name in ("ask_all", "execute_command"):
                    setattr(client, name, fate.of(getattr(client, name)))
            with suppress(KilledError):
                await of(mortal, tier, "killed").run(until_idle=True)

        await of(tiers, tier, "next", 0).run(until_idle=True)

        stream = "telemetry" if tier == "regional" else "regional"
        assert await num_pending(tiers.redis, tiers.region("north", stream), tier) == 0
        if tier == "regional":
            await tiers.global_(["north"]).run(until_idle=True)
        totals = await tiers.totals()
        assert (totals.counted, totals.duplicates) == (NUM_PACKETS, 0), f"killed at call {number}"
        assert num_packets(await tiers.said_globally()) == NUM_PACKETS
        if fate.left >= 0:
            break
    assert 7 < number < MOST_CALLS - 1


def of(tiers: Tiers, tier: str, name: str, reclaim_after_ms: int | None = None) -> Aggregator:
    if tier == "regional":
        return tiers.regional("north", name, reclaim_after_ms=reclaim_after_ms)
    return tiers.global_(["north"], name, reclaim_after_ms=reclaim_after_ms)
