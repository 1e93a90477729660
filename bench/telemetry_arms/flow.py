"""Telemetry at a steady rate, and who waits for what comes of it."""

from __future__ import annotations

import math
import os
import time
from typing import Any

import numpy as np

from bus_arms.pace import TELEMETRY_NICE
from bus_arms.streams import plain
from esper.bus import connect
from esper.bus.publisher import Publisher
from telemetry_arms.streams import body_of
from telemetry_arms.traffic import GLOBAL, IN_A_MESSAGE, TELEMETRY, framed, messages, packet, values_of, worker

BURST = 32  # frames in one round trip, where the rate is high

_made: list[bytes] = []


async def send_frames(url: str, directory: str, per_s: float, seconds: float) -> int:
    """Frames of 32 at this rate of packets, each stamped when it is added; how many packets."""
    by, row, sequence = worker(directory), [0.4182, 0.00098, 0.9312, 1.7033, 12.81], 0
    async with connect.writer(url) as writer:
        publisher, began = Publisher(writer), time.monotonic()
        while not sequence or time.monotonic() < began + seconds:
            time.sleep(max(0.0, began + sequence / per_s - time.monotonic()))
            at_ns = time.time_ns()
            packets = [packet(sequence + each, row, at_ns) for each in range(1, 33)]
            await publisher.add(TELEMETRY, by.seal(framed(packets, 7)))
            sequence += 32
    return sequence


async def make(url: str, directory: str, per_s: float, seconds: float, incarnation: int = 7) -> None:
    """Seal what send_made adds at a rate at which it could not be made: before anything is timed."""
    by, num = worker(directory), int(per_s * seconds) // 1024 * 1024
    _made[:] = [by.seal(each) for each in messages("frames", np.resize(values_of(1024), (num, 5)), incarnation)]


async def send_made(url: str, directory: str, per_s: float) -> int:
    """What was made, at this rate; how many packets."""
    os.setpriority(os.PRIO_PROCESS, 0, TELEMETRY_NICE)
    in_each, began = IN_A_MESSAGE["frames"], time.monotonic()
    async with connect.writer(url) as writer:
        publisher = Publisher(writer)
        for start in range(0, len(_made), BURST):
            time.sleep(max(0.0, began + start * in_each / per_s - time.monotonic()))
            await publisher.add_many(TELEMETRY, _made[start : start + BURST])
    return len(_made) * in_each


async def watch_global(url: str, directory: str, seconds: float) -> list[float]:
    """Milliseconds from the oldest packet in each global aggregate to its arrival at a subscriber, for so long from the
    first one on: both tiers, and who sends, may begin later than who watches.
    """
    taken, ends = list[float](), math.inf
    async with plain(url) as redis:
        last = b"0"
        while time.monotonic() < ends:
            reply: Any = await redis.xread({GLOBAL: last}, block=100)
            now_ns = time.time_ns()
            for entry_id, fields in reply[0][1] if reply else ():
                last, aggregate = entry_id, body_of(fields[b"m"])
                if aggregate.num_packets:
                    taken.append((now_ns - aggregate.first_timestamp_ns) / 1e6)
                    ends = min(ends, time.monotonic() + seconds)
    return taken
