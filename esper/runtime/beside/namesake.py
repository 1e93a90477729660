"""Refuses a trainer that would not be alone: another one bears its name, or the run is one of another kind."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple, TypeAlias

from esper.bus import names, tail
from esper.bus.connect import Redis
from esper.errors import RefusedError, SettingError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_ms
from esper.leyline.seal import Opener

Beat: TypeAlias = tuple[str, pb.Heartbeat]
"""Whose it is, and what it says."""

RECENT_MS = 1_500
WATCH_S = 2.2
"""A worker beats twice a second, or at its next boundary: where steps take up to a second it is heard twice in that."""
LOOK_S = 0.1
LONGEST_LOOK_S = 2 * LOOK_S
"""No look counts for more: where the machine stood still, whoever is beside said nothing either."""
NUM_BEATS = 2
"""One may have been on its way when its trainer died."""


class Newcomer(NamedTuple):
    """A trainer that has just begun."""

    name: str
    world_size: int = 1

    def is_rival(self, producer: str, beat: pb.Heartbeat) -> bool:
        """Whether both can't be in one run, if the other one lives: a run is one process group, or replicas.

        A rank that is not heard itself may be one that hangs since its group has ended, which is to begin anew.
        """
        if beat.HasField("report") or (beat.world_size > 1 and beat.repeated):
            return False
        return (beat.world_size > 1) != (self.world_size > 1) or producer == self.name

    def refusal(self, producer: str, beat: pb.Heartbeat) -> SettingError:
        """Why it is not let in beside that one."""
        if beat.world_size == self.world_size == 1:
            expected = f"one that no other worker of the run bears: a process called so stands at step {beat.step}"
            return SettingError("name of this worker (ESPER_NAME, attach(name=...))", self.name, expected)
        met = f"{producer}, one of {beat.world_size}, stands at step {beat.step}"
        expected = f"a run of its own (ESPER_RUN): {met}, and a run is one process group or workers in none"
        return SettingError("place of this worker", f"{self.name}, one of {self.world_size}", expected)


async def require_alone(
    redis: Redis, run_id: str, newcomer: Newcomer, opener: Opener, now_ms: int, watch_s: float = WATCH_S
) -> None:
    """Before a trainer that has just begun touches the groups of its name. SettingError where one that it can't be
    beside has beaten lately and goes on to: that is looked at for `watch_s` seconds, unless it falls silent before.
    """
    stream = names.key(run_id, "heartbeats")
    position = await tail.newest_id(redis, stream)
    heard_ms = _last_heard_ms(newcomer, await _recent(redis, stream, opener, position, now_ms))
    num, looked_s, waited_s = Counter[int](), time.monotonic(), 0.0
    while waited_s < watch_s and now_ms + waited_s * 1000 - heard_ms <= RECENT_MS:
        await asyncio.sleep(LOOK_S)
        before_s, looked_s = looked_s, time.monotonic()
        waited_s += min(looked_s - before_s, LONGEST_LOOK_S)
        for row in await tail.read_after(redis, stream, position, waits=False):
            position, sealed = tail.message(row)
            met = _beat(opener, position, sealed, now_ms)
            if met is None or not newcomer.is_rival(*met):
                continue
            heard_ms = entry_ms(position)
            num[met[1].incarnation] += 1
            if num[met[1].incarnation] >= NUM_BEATS:
                raise newcomer.refusal(*met)


async def _recent(
    redis: Redis, stream: str, opener: Opener, position: str, now_ms: int
) -> list[tuple[str, str, pb.Heartbeat]]:
    """Every heartbeat of the last second and a half, whose it is and where it lies, in order; whatever lies between."""
    found = []
    async with aclosing(tail.backwards(redis, stream, position)) as entries:
        async for at, sealed in entries:
            if entry_ms(at) < now_ms - RECENT_MS:
                break
            if (met := _beat(opener, at, sealed, now_ms)) is not None:
                found.append((at, *met))
    return found[::-1]


def _last_heard_ms(newcomer: Newcomer, heard: Sequence[tuple[str, str, pb.Heartbeat]]) -> float:
    """When a rival that has not left was last heard: not by the newest word of each alone, as a rank whose steps take
    half a second has its words repeated in between. Minus infinity: there is none.
    """
    newest = {producer: beat for _, producer, beat in heard}
    rivals = [
        at
        for at, producer, beat in heard
        if newcomer.is_rival(producer, beat) and not newest[producer].HasField("report")
    ]
    return entry_ms(rivals[-1]) if rivals else -math.inf


def _beat(opener: Opener, at: str, sealed: bytes, now_ms: int) -> Beat | None:
    """The heartbeat, and whose it is."""
    try:
        opened = opener.open(sealed, at, now_ms)
    except RefusedError:
        return None  # no word of a worker's, and the coordinator's to tell
    return (opened.header.producer, opened.message) if isinstance(opened.message, pb.Heartbeat) else None
