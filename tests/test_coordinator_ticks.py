"""Votes that others are awaited with cost no look at every rank; the last one is decided, and followed, in its step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from esper.runtime.coordinator import loop
from esper.runtime.coordinator.loop import CoordinatorLoop
from esper.tamiyo.coordinator import Coordinator
from esper.tamiyo.outcome import Outcome
from tests.bus_kit import drain
from tests.clocks import Clock
from tests.coordinator_kit import Run, run, step_until_idle
from tests.rounds import germinate, heartbeat, vote

__all__ = ["run"]


class Counting(Coordinator):
    """Knows how often it was asked what time brings."""

    num_ticks = 0

    def tick(self, now_ns: int) -> Outcome:
        self.num_ticks += 1
        return super().tick(now_ns)


async def begun(run: Run) -> tuple[CoordinatorLoop, Counting]:
    """Two ranks, and a round that waits for their votes."""
    coordinating = await run.coordinator()
    rule = coordinating.rule = Counting("coordinator")
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await run.put("commands", germinate("s0"))
    await step_until_idle(coordinating)
    return coordinating, rule


async def test_the_last_vote_is_decided_in_its_step_though_those_before_it_were_not_looked_at(run: Run) -> None:
    coordinating, _ = await begun(run)
    await run.put("heartbeats", heartbeat(0, step=1_000, due=True))
    await coordinating.step(await drain(coordinating.inboxes["heartbeats"]))

    for rank in range(2):
        await run.put("votes", vote(rank))
        await coordinating.step(await drain(coordinating.inboxes["votes"]))

    assert await run.decisions() == ["Proposal 1", "Commit 1", "Proposal 2"]


async def test_time_passes_whatever_else_comes_or_nothing(run: Run) -> None:
    coordinating, rule = await begun(run)
    before = rule.num_ticks

    await coordinating.step([])
    await run.put("heartbeats", heartbeat(0))
    await coordinating.step(await drain(coordinating.inboxes["heartbeats"]))
    await run.put("commands", germinate("s1"))
    await coordinating.step(await drain(coordinating.inboxes["commands"]))

    assert rule.num_ticks == before + 3


@pytest.mark.parametrize("by_ms", [3_600_000, -3_600_000], ids=["set on", "set back"])
async def test_a_server_whose_clock_is_set_costs_no_rank_its_place(run: Run, by_ms: int) -> None:
    coordinating, rule = await begun(run)
    assert coordinating.clock.offset_ms is not None and rule.barrier is not None
    proposed_ns = rule.barrier.proposed_ns

    coordinating.clock.offset_ms += by_ms  # as after its next look
    await coordinating.step([])

    assert await run.decisions() == ["Proposal 1"]
    assert rule.barrier.proposed_ns == proposed_ns + by_ms * 1_000_000


async def test_nor_does_one_that_is_set_while_a_step_waits_for_redis(run: Run) -> None:
    """As while it counts a command as tried that an earlier coordinator had in hand."""
    earlier = await run.coordinator()
    await run.put("commands", germinate("s1"))
    await earlier.step(await drain(earlier.inboxes["commands"]))
    coordinating, _ = await begun(run)
    await run.put("heartbeats", heartbeat(0))
    await run.put("votes", vote(0))
    arrived = [each for log in ("heartbeats", "votes") for each in await drain(coordinating.inboxes[log])]

    async def look() -> None:
        assert coordinating.clock.offset_ms is not None
        coordinating.clock.offset_ms += 3_600_000

    looking = asyncio.create_task(look())
    await coordinating.step(arrived)

    assert looking.done()
    assert await run.decisions() == ["Proposal 1"]


async def test_nor_does_one_that_is_set_while_a_step_looks_for_what_a_lost_connection_leaves_in_doubt(run: Run) -> None:
    """As at a failover, where the clock is looked at as soon as another server answers."""
    coordinating, rule = await begun(run)
    assert rule.barrier is not None
    proposed_ns, coordinating._is_in_doubt = rule.barrier.proposed_ns, True

    async def look() -> None:
        assert coordinating.clock.offset_ms is not None
        coordinating.clock.offset_ms += 3_600_000

    looking = asyncio.create_task(look())
    await coordinating.step([])
    await coordinating.step([])

    assert looking.done()
    assert await run.decisions() == ["Proposal 1"]
    assert rule.barrier.proposed_ns == proposed_ns + 3_600_000 * 1_000_000


async def test_a_redis_that_keeps_a_step_waiting_costs_no_rank_its_place(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while it takes back that a command counted as tried: nobody is heard meanwhile."""
    earlier, clock = await run.coordinator(), Clock(time.monotonic())
    await run.put("commands", germinate("s0"))
    await earlier.step(await drain(earlier.inboxes["commands"]))
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=clock, monotonic_ns=lambda: int(clock() * 1e9)))
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await coordinating.step(await drain(coordinating.inboxes["heartbeats"]))
    commands = coordinating.inboxes["commands"]
    acquit = commands.acquit

    async def late(entry_ids: Sequence[str]) -> None:
        await acquit(entry_ids)
        clock.now_s += 60.0

    monkeypatch.setattr(commands, "acquit", late)
    await coordinating.step(await drain(commands))

    assert await run.decisions() == ["Proposal 1"]
