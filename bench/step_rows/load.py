"""A process that seals packets one by one and adds them to a region's stream, at a steady rate, until it is ended."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import uvloop

from esper.bus import connect, names
from esper.bus.publisher import Publisher
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.rolekeys import RoleKeyring
from esper.leyline.seal import Sealer

BURST = 32  # packets of one round trip: 3.2 ms of the load


async def main(url: str, keyring: str, region: str, per_s: float) -> None:
    """Writes how many Redis has acknowledged, and in how many seconds, after each second."""
    keys = RoleKeyring.load(Path(keyring))
    sealer, stream = Sealer(keys, Role.WORKER, "load"), names.region_key(keys.run_id, region, "telemetry")
    async with connect.writer(url) as writer:
        publisher, begun, sent, told = Publisher(writer), time.monotonic(), 0, 0
        while True:
            await asyncio.sleep(begun + (sent + BURST) / per_s - time.monotonic())
            burst = [sealer.seal(packet(sent + at), target=region) for at in range(1, BURST + 1)]
            await publisher.add_many(stream, burst)
            sent += BURST
            if (seconds := time.monotonic() - begun) >= told + 1:
                told = int(seconds)
                print(sent, seconds, flush=True)


def packet(sequence: int) -> pb.TelemetryPacket:
    """Five metrics of one step."""
    values = {"loss": 0.4182, "lr": 0.00098, "acc": 0.9312, "gradnorm": 1.7033, "step_ms": 12.81}
    info = pb.TelemetryLevel.TELEMETRY_INFO
    return pb.TelemetryPacket(
        version=1, timestamp_ns=time.time_ns(), level=info, sequence=sequence, global_step=sequence, values=values
    )


if __name__ == "__main__":
    given_url, given_keyring, given_region, rate = sys.argv[1:]
    uvloop.run(main(given_url, given_keyring, given_region, float(rate)))
