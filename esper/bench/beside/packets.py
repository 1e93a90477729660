"""A process that seals packets one by one and adds them to a region's stream, at a steady rate, until it is ended."""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from pathlib import Path

from esper.bus import connect, names
from esper.bus.publisher import Publisher
from esper.leyline import contracts as pb
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.runtime import process

BURST = 32  # packets of one round trip: 3.2 ms of the load


async def send(url: str, keyring: str, region: str, per_s: float, stopping: asyncio.Event) -> None:
    """Writes how many Redis has acknowledged, and in how many seconds, after each second."""
    keys = RoleKeyring.load(Path(keyring))
    sealer, stream = Sealer(keys, Role.WORKER, "load"), names.region_key(keys.run_id, region, "telemetry")
    async with connect.writer(url) as writer:
        publisher, begun, num, told = Publisher(writer), time.monotonic(), 0, 0
        while not stopping.is_set():
            await asyncio.sleep(begun + (num + BURST) / per_s - time.monotonic())
            burst = [sealer.seal(packet(num + at), target=region) for at in range(1, BURST + 1)]
            await publisher.add_many(stream, burst)
            num += BURST
            if (seconds := time.monotonic() - begun) >= told + 1:
                told = int(seconds)
                print(num, seconds, flush=True)


def packet(sequence: int) -> pb.TelemetryPacket:
    """Five metrics of one step."""
    values = {"loss": 0.4182, "lr": 0.00098, "acc": 0.9312, "gradnorm": 1.7033, "step_ms": 12.81}
    info = pb.TelemetryLevel.TELEMETRY_INFO
    return pb.TelemetryPacket(
        version=1, timestamp_ns=time.time_ns(), level=info, sequence=sequence, global_step=sequence, values=values
    )


if __name__ == "__main__":
    given_url, given_keyring, given_region, rate = sys.argv[1:]
    process.run(partial(send, given_url, given_keyring, given_region, float(rate)))
