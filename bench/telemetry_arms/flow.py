"""Telemetry at a steady rate, and who waits for what comes of it."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import numpy as np

from bus_arms.pace import PATIENCE_S, TELEMETRY_NICE
from bus_arms.streams import plain
from bus_arms.traffic import RUN, master
from esper.bus import connect
from esper.bus.publisher import Publisher
from esper.bus.tail import follow
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener
from telemetry_arms.streams import body_of
from telemetry_arms.traffic import EMERGENCY, GLOBAL, REGION, TELEMETRY, framed, messages, packet, values_of, worker

BURST = 32  # frames in one round trip, where the rate is high


async def send_frames(url: str, directory: str, per_s: float, seconds: float) -> int:
    """Frames of 32 at this rate of packets, each stamped when it is added; how many packets."""
    by, row = worker(directory), [0.4182, 0.00098, 0.9312, 1.7033, 12.81]
    began, sequence = time.monotonic(), 0
    async with connect.writer(url) as writer:
        publisher = Publisher(writer)
        while time.monotonic() < began + seconds:
            time.sleep(max(0.0, began + sequence / per_s - time.monotonic()))
            at_ns = time.time_ns()
            packets = [packet(sequence + each, row, at_ns) for each in range(1, 33)]
            await publisher.add(TELEMETRY, by.seal(framed(packets, 7)))
            sequence += 32
    return sequence


async def send_made(url: str, directory: str, per_s: float, seconds: float, form: str = "frames") -> int:
    """Telemetry that was sealed before, at a rate at which it could not be made here; how many packets."""
    os.setpriority(os.PRIO_PROCESS, 0, TELEMETRY_NICE)
    by, num = worker(directory), int(per_s * seconds) // 1024 * 1024
    made = [by.seal(each) for each in messages(form, np.resize(values_of(1024), (num, 5)), 7)]
    in_each, began = num // len(made), time.monotonic()
    async with connect.writer(url) as writer:
        publisher = Publisher(writer)
        for start in range(0, len(made), BURST):
            time.sleep(max(0.0, began + start * in_each / per_s - time.monotonic()))
            await publisher.add_many(TELEMETRY, made[start : start + BURST])
    return num


async def watch_global(url: str, directory: str, seconds: float) -> list[float]:
    """Milliseconds from the oldest packet in each global aggregate to its arrival at a subscriber, for so long."""
    taken, ends = list[float](), time.monotonic() + seconds
    async with plain(url) as redis:
        last = b"0"
        while time.monotonic() < ends:
            reply: Any = await redis.xread({GLOBAL: last}, block=100)
            now_ns = time.time_ns()
            for entry_id, fields in reply[0][1] if reply else ():
                last, aggregate = entry_id, body_of(fields[b"m"])
                if aggregate.num_packets:
                    taken.append((now_ns - aggregate.first_timestamp_ns) / 1e6)
    return taken


async def send_critical(url: str, directory: str, num: int, seconds: float) -> None:
    """Critical packets as a runtime sends them: first the signal, then the frame."""
    by = worker(directory)
    began = time.monotonic()
    async with connect.writer(url) as writer:
        publisher = Publisher(writer)
        for number in range(1, num + 1):
            time.sleep(max(0.0, began + number * seconds / num - time.monotonic()))
            due_ns = time.time_ns()
            signal = pb.EmergencySignal(
                version=1,
                level=pb.EmergencyLevel.EMERGENCY_ELEVATED,
                reason="value.non_finite",
                origin="worker-1",
                triggered_at_ns=due_ns,
                packet_sequence=number,
            )
            await publisher.add(EMERGENCY, by.seal(signal))
            critical = packet(number, [0.1] * 5, due_ns)
            critical.level = pb.TelemetryLevel.TELEMETRY_CRITICAL
            frame = pb.TelemetryFrame(version=1, source="worker-1", incarnation=9, region=REGION, packets=[critical])
            await publisher.add(TELEMETRY, by.seal(frame))


async def watch_critical(url: str, directory: str, num: int, seconds: float) -> list[float]:
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
