"""Refuses a trainer whose name another one of the run bears: two would take each other's orders off one group."""

from __future__ import annotations

import asyncio
import time

from esper.bus import names, tail
from esper.bus.connect import Redis
from esper.errors import RefusedError, SettingError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_ms
from esper.leyline.envelope import unpack
from esper.leyline.seal import Opener

NUM_LOOKED_AT = 512
RECENT_MS = 1_500
WATCH_S = 1.5
"""A worker beats twice a second."""
LOOK_S = 0.1
NUM_BEATS = 2
"""One may have been on its way when its trainer died."""


async def require_alone(
    redis: Redis, run_id: str, name: str, opener: Opener, now_ms: int, watch_s: float = WATCH_S
) -> None:
    """Before a trainer that has just begun touches the groups of its name. SettingError where another process of this
    name, in no process group, has beaten lately and goes on to: that is looked at for `watch_s` seconds.

    Ranks are not looked after: whoever starts their group ends the old one first.
    """
    stream = names.key(run_id, "heartbeats")
    entries = await tail.last(redis, stream, NUM_LOOKED_AT)
    recent = [entry for entry in entries if entry_ms(entry[0]) >= now_ms - RECENT_MS]
    beats = [beat for at, sealed in recent if (beat := _beat_of(name, opener, at, sealed, now_ms)) is not None]
    if not beats or beats[-1].HasField("report") or beats[-1].world_size > 1:
        return
    position, num, give_up_at = entries[-1][0], 0, time.monotonic() + watch_s
    while time.monotonic() < give_up_at:
        await asyncio.sleep(LOOK_S)
        for row in await tail.read_after(redis, stream, position, waits=False):
            position, sealed = tail.message(row)
            beat = _beat_of(name, opener, position, sealed, now_ms)
            num += beat is not None and beat.incarnation == beats[-1].incarnation and not beat.HasField("report")
            if beat is not None and num >= NUM_BEATS:
                expected = f"one that no other worker of the run bears: a process called so stands at step {beat.step}"
                raise SettingError("name of this worker (ESPER_NAME, attach(name=...))", name, expected)


def _beat_of(name: str, opener: Opener, at: str, sealed: bytes, now_ms: int) -> pb.Heartbeat | None:
    """The heartbeat, if it is of a worker of this name; the others' are not opened."""
    try:
        if unpack(sealed).header.producer != name:
            return None
        message = opener.open(sealed, at, now_ms).message
    except RefusedError:
        return None  # no word of a worker's, and the coordinator's to tell
    return message if isinstance(message, pb.Heartbeat) else None
