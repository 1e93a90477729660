"""Critical packets and whoever waits for them, beside plain redis-py taking entries of their size the same way."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bus_arms.pace import NUMBER_AND_TIME, PATIENCE_S, SIZE, paced
from bus_arms.streams import plain
from bus_arms.traffic import RUN, master
from esper.bus import connect
from esper.bus.publisher import Publisher
from esper.bus.tail import follow
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener
from telemetry_arms.traffic import EMERGENCY, REGION, TELEMETRY, packet, worker

BARE = "bare:urgent"
LOOK_EVERY_S = 0.005


async def prepare(url: str, directory: str) -> None:
    """Empty streams."""
    async with plain(url) as redis:
        await redis.unlink(EMERGENCY, BARE)


async def watched(url: str, directory: str, num: int) -> None:
    """Return once so many wait for their first entry: what is sent before that would wait for them to start."""
    async with plain(url) as redis, asyncio.timeout(PATIENCE_S):
        while sum(each["cmd"] == "xread" and "b" in each["flags"] for each in await redis.client_list()) < num:
            await asyncio.sleep(LOOK_EVERY_S)


async def send(url: str, directory: str, num: int, seconds: float, first: int) -> None:
    """Critical packets as a runtime sends them, numbered from `first`: the signal, then the frame."""
    by = worker(directory)
    async with connect.writer(url) as writer:
        publisher = Publisher(writer)

        async def publish(number: int, due_ns: int) -> None:
            sequence, at_ns = first + number - 1, time.time_ns()
            signal = pb.EmergencySignal(
                version=1,
                level=pb.EmergencyLevel.EMERGENCY_ELEVATED,
                reason="value.non_finite",
                origin="worker-1",
                triggered_at_ns=at_ns,
                packet_sequence=sequence,
            )
            await publisher.add(EMERGENCY, by.seal(signal))
            critical = packet(sequence, [0.1] * 5, at_ns)
            critical.level = pb.TelemetryLevel.TELEMETRY_CRITICAL
            frame = pb.TelemetryFrame(version=1, source="worker-1", incarnation=9, region=REGION, packets=[critical])
            await publisher.add(TELEMETRY, by.seal(frame))

        await paced(publish, num, seconds)


async def watch(url: str, directory: str, num: int, seconds: float) -> list[float]:
    """Milliseconds from each critical packet to its subscriber, which opens what it reads."""
    opener = Opener(master(directory).derive(RUN, [Role.OBSERVER]), guard=None, accept={Domain.EMERGENCY})
    taken = list[float]()
    async with connect.reader(url) as redis, asyncio.timeout(seconds + PATIENCE_S):
        async for entry_id, sealed in follow(redis, EMERGENCY, "0-0"):
            signal = opener.open(sealed, entry_id, int(entry_id.partition("-")[0])).message
            assert isinstance(signal, pb.EmergencySignal)
            taken.append((time.time_ns() - signal.triggered_at_ns) / 1e6)
            if len(taken) == num:
                break
    return taken


async def bare_send(url: str, directory: str, num: int, seconds: float) -> None:
    """The client's own XADD, neither sealed nor repeated in the tiers."""
    async with plain(url) as redis:

        async def publish(number: int, due_ns: int) -> None:
            await redis.xadd(BARE, {b"m": NUMBER_AND_TIME.pack(number, time.time_ns()).ljust(SIZE, b"\0")})

        await paced(publish, num, seconds)


async def bare_watch(url: str, directory: str, num: int, seconds: float) -> list[float]:
    """Milliseconds from each to the client's own blocking XREAD."""
    taken, last = list[float](), b"0"
    async with plain(url) as redis, asyncio.timeout(seconds + PATIENCE_S):
        while len(taken) < num:
            reply: Any = await redis.xread({BARE: last}, block=500)
            now_ns = time.time_ns()
            for entry_id, fields in reply[0][1] if reply else ():
                last = entry_id
                taken.append((now_ns - NUMBER_AND_TIME.unpack_from(fields[b"m"])[1]) / 1e6)
    return taken
