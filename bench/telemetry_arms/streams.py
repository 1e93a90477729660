"""Streams before and after a slice; none of it is timed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from bus_arms.streams import ADD, SliceError, plain, server_forks as server_forks
from esper.leyline import contracts as pb
from esper.leyline.envelope import unpack
from telemetry_arms.traffic import DEAD, GLOBAL, REGIONAL, TELEMETRY, TOTALS, WINDOWS

CHUNK_BYTES = 1 << 20
STOP = "bench:stop"
LOOK_EVERY_S = 0.02
KEYS = (TELEMETRY, REGIONAL, WINDOWS, GLOBAL, TOTALS, DEAD)


async def fill(url: str, stream: str, bodies: Sequence[bytes], group: str) -> None:
    """Nothing of an earlier slice, and these in the stream."""
    async with plain(url) as redis:
        await redis.unlink(*KEYS, stream)
        together = max(1, CHUNK_BYTES // len(bodies[0]))
        for start in range(0, len(bodies), together):
            await redis.eval(ADD, 1, stream, *bodies[start : start + together])
        await redis.xgroup_create(stream, group, id="0", mkstream=True)


async def prepare(url: str, directory: str) -> None:
    """Empty streams, each with its group."""
    async with plain(url) as redis:
        await redis.unlink(*KEYS, STOP)
        for stream, group in ((TELEMETRY, "regional"), (REGIONAL, "global")):
            await redis.xgroup_create(stream, group, id="0", mkstream=True)


async def stop(url: str, directory: str, num: int) -> None:
    """Tell so many tiers to stop."""
    async with plain(url) as redis:
        await redis.rpush(STOP, *["now"] * num)


async def counted(url: str, directory: str, num: int, patience_s: float) -> float:
    """Seconds until the global tier has counted so many packets, or until patience ends."""
    began = time.monotonic()
    async with plain(url) as redis:
        while time.monotonic() < began + patience_s and int(await redis.hget(TOTALS, "counted") or 0) < num:
            await asyncio.sleep(LOOK_EVERY_S)
    return time.monotonic() - began


async def check_folded(url: str, stream: str, num: int) -> None:
    """Aggregates of so many packets, or SliceError."""
    found = await aggregates(url, stream)
    folded = sum(each.num_packets for each in found)
    async with plain(url) as redis:
        letters = await redis.xlen(DEAD)
    if folded != num or letters:
        raise SliceError(f"folded {folded} of {num} packets; {letters} dead letters")


async def aggregates(url: str, stream: str) -> list[pb.AggregatedTelemetry]:
    async with plain(url) as redis:
        entries: Any = await redis.xrange(stream)
    return [body_of(fields[b"m"]) for _, fields in entries]


def body_of(sealed: bytes) -> pb.AggregatedTelemetry:
    parts = unpack(sealed)
    return pb.AggregatedTelemetry.FromString(sealed[parts.body_start : parts.body_end])


async def reached(url: str, directory: str) -> tuple[int, int, int]:
    """Packets that the global tier has counted, regional aggregates, global ones."""
    regional, found = await aggregates(url, REGIONAL), await aggregates(url, GLOBAL)
    return sum(each.num_packets for each in found), len(regional), len(found)


async def unread(url: str, directory: str) -> int:
    """Entries of telemetry that the regional tier was not handed yet."""
    async with plain(url) as redis:
        [group] = await redis.xinfo_groups(TELEMETRY)
        entries: Any = await redis.xrange(TELEMETRY, min=b"(" + group["last-delivered-id"])
        return len(entries)


async def behind(url: str, directory: str, num: int, patience_s: float) -> None:
    """Return once so many entries are unread, or when patience ends: the tiers keep up here."""
    ends = time.monotonic() + patience_s
    while time.monotonic() < ends and await unread(url, directory) < num:
        await asyncio.sleep(LOOK_EVERY_S)
