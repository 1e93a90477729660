"""Processes whose clocks are apart: each goes by the server's, also for what it seals."""

from __future__ import annotations

import time

from esper.bus import names
from esper.leyline import contracts as pb
from esper.leyline.envelope import unpack
from esper.leyline.seal import Sealer
from tests.rounds import germinate, heartbeat, vote
from tests.test_beside import Run as Steered, steered
from tests.test_coordinator import Run, run, step_until_idle

__all__ = ["run", "steered"]
TEN_MINUTES_MS = 600_000


def ahead_s(sealer: Sealer, said: pb.LeaderAnnouncement | pb.Heartbeat) -> float:
    """Of this machine's clock."""
    return (unpack(sealer.seal(said)).header.issued_at_ns - time.time_ns()) / 1e9


async def test_a_coordinator_seals_by_the_servers_clock(run: Run) -> None:
    coordinating = await run.coordinator()
    sealer, said = coordinating.seals.sealer, pb.LeaderAnnouncement(version=1, leader="c", lease_token=1)
    before_s = ahead_s(sealer, said)

    assert coordinating.clock.offset_ms is not None
    coordinating.clock.offset_ms += TEN_MINUTES_MS

    assert abs(before_s) < 60
    assert abs(ahead_s(sealer, said) - before_s - 600) < 60


async def test_a_runtime_seals_by_the_servers_clock(steered: Steered) -> None:
    async with steered.runtime() as (beside, _):
        before_s = ahead_s(beside.sealer, heartbeat())

        assert beside.clock.offset_ms is not None
        beside.clock.offset_ms += TEN_MINUTES_MS

        assert abs(before_s) < 60
        assert abs(ahead_s(beside.sealer, heartbeat()) - before_s - 600) < 60


async def test_a_command_in_hand_is_answered_once_though_its_group_is_gone_and_the_clock_set_back(run: Run) -> None:
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    [entry] = await run.put("commands", germinate("s0"))
    await step_until_idle(coordinating)

    await run.redis.xgroup_destroy(names.key(run.run_id, "commands"), "coordinator")
    assert coordinating.clock.offset_ms is not None
    coordinating.clock.offset_ms -= TEN_MINUTES_MS
    await step_until_idle(coordinating)
    coordinating.clock.offset_ms += TEN_MINUTES_MS
    await step_until_idle(coordinating)
    await run.put("votes", vote(0), vote(1))
    await step_until_idle(coordinating)

    assert await run.receipts() == [("s0-1", entry, "NONE")]
