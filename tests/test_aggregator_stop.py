"""An aggregator that is told to stop settles what it took in, and hands back at once what it had only read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from esper.bus.connect import Redis
from esper.leyline.seal import Opened
from tests.bus_kit import num_pending, reads_ahead
from tests.packet_kit import framed, num_packets, packets
from tests.tiers import Tiers

LEASE_MS = 60_000


async def test_a_stopped_aggregator_hands_back_what_it_read_ahead(
    redis: Redis, redis_reader: Redis, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads_ahead(monkeypatch)
    tiers = await Tiers(redis, redis_reader, run_id).open()
    await tiers.say("north", framed(packets(2_000), most=5))
    leaving = tiers.regional("north", "leaving", reclaim_after_ms=LEASE_MS)
    pipeline = leaving.pipeline

    def stop_at_once(frame: Opened, now_s: float) -> None:
        leaving.inboxes[0].stop()
        pipeline.fold(frame, now_s)

    leaving.pipeline = replace(pipeline, fold=stop_at_once)
    await leaving.run()
    settled = num_packets(await tiers.said_by("north"))
    heir = tiers.regional("north", "heir", reclaim_after_ms=LEASE_MS)
    await heir.run(until_idle=True)

    assert 0 < settled < 2_000
    assert num_packets(await tiers.said_by("north")) == 2_000
    telemetry = tiers.region("north", "telemetry")
    assert await num_pending(redis, telemetry, "regional") == 0
    assert [row["name"] for row in await redis.xinfo_consumers(telemetry, "regional")] == [b"released"]
