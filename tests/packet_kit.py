"""Packets of telemetry with values of known distributions, and frames of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from esper.leyline import contracts as pb


def packets(count: int, seed: int = 0) -> list[pb.TelemetryPacket]:
    generator = random.Random(seed)
    return [
        pb.TelemetryPacket(
            version=1,
            sequence=number,
            timestamp_ns=1_000_000 + generator.randrange(10**6),
            global_step=number,
            level=pb.TelemetryLevel.TELEMETRY_INFO,
            values={"loss": generator.gauss(2.0, 0.5), "norm": generator.lognormvariate(3.0, 2.0)},
        )
        for number in range(1, count + 1)
    ]


def framed(
    made: Sequence[pb.TelemetryPacket], region: str = "north", source: str = "worker-0", *, most: int = 32
) -> list[pb.TelemetryFrame]:
    """Frames of up to `most` packets."""
    return [
        pb.TelemetryFrame(version=1, source=source, incarnation=1, region=region, packets=made[start : start + most])
        for start in range(0, len(made), most)
    ]


def num_packets(aggregates: Sequence[pb.AggregatedTelemetry]) -> int:
    return sum(aggregate.num_packets for aggregate in aggregates)
