"""Plain reads, which move no group and acknowledge nothing."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import structlog

from esper.bus.backoff import Backoff
from esper.bus.client.deadline import in_time
from esper.bus.connect import WRITE_S, Redis
from esper.bus.faults import LostError
from esper.bus.group.delivery import Row, body_of, entries_of
from esper.bus.protocol import Argument

BLOCK_MS = 1000
MARGIN_S = 5.0
COUNT = 256
NOTHING = "0-0"
LONG_S = 30.0
"""Without a read for so long, or with as many entries as one read brings, a reader may have been left behind: by this
read or by the one after it, as a server answers a read that waits also while its reader is stopped."""

log = structlog.get_logger()


async def last(redis: Redis, stream: str, n: int) -> list[tuple[str, bytes]]:
    """The newest n entries, oldest first: id and sealed message. A client without a deadline waits as a writer does."""
    words = ("XREVRANGE", stream, "+", "-", "COUNT", str(n))
    rows = await redis.ask(words, WRITE_S if redis.deadline_s is None else None)
    return [message(row) for row in reversed(rows)]


async def follow(redis: Redis, stream: str, since: str = "$") -> AsyncGenerator[tuple[str, bytes], None]:
    """Every entry after `since`, without end, also across lost connections; `$`: after the newest one of now.

    What was trimmed before a reader who is late came to it is told of, and left out.
    """
    backoff = Backoff()
    position, read_at_s, was_late = since, math.inf, False  # what it begins at may lie before all there ever was
    while True:
        try:
            position = await newest_id(redis, stream) if position == "$" else position
            rows = await read_after(redis, stream, position)
            is_late = len(rows) == COUNT or time.monotonic() - read_at_s > LONG_S
            if rows and read_at_s < math.inf and (is_late or was_late):
                await tell_missed(redis, stream, position, message(rows[0])[0])
        except LostError as error:
            if not backoff.failures:
                log.warning("tail.interrupted", stream=stream, why=str(error))
            await asyncio.sleep(backoff.next_s())
            continue
        if backoff.reset():
            log.info("tail.resumed", stream=stream, after=position)
        read_at_s, was_late = time.monotonic(), is_late or (was_late and not rows)
        for row in rows:
            position, sealed = message(row)
            yield position, sealed


async def tell_missed(redis: Redis, stream: str, position: str, first: str) -> None:
    """Say so where the entry read last is trimmed, and all before the first that was found behind it.

    No server says whether anything stood between the two.
    """
    oldest = await answered(redis, stream, ("XRANGE", stream, "-", "+", "COUNT", "1"), MARGIN_S)
    if position not in ("0", NOTHING) and oldest and message(oldest[0])[0] == first:
        log.warning("entries.missed", stream=stream, after=position, before=first)


async def body_at(redis: Redis, stream: str, entry_id: str) -> bytes | None:
    """The sealed message of one entry; None where there is none of that id."""
    rows = await redis.ask(("XRANGE", stream, entry_id, entry_id))
    return message(rows[0])[1] if rows else None


async def newest_id(redis: Redis, stream: str) -> str:
    """Id of the newest entry, `0-0` where there is none."""
    entries = await last(redis, stream, 1)
    return entries[0][0] if entries else NOTHING


async def backwards(redis: Redis, stream: str, end: str = "+") -> AsyncGenerator[tuple[str, bytes], None]:
    """What the stream holds up to an entry id, newest first."""
    while rows := await redis.ask(("XREVRANGE", stream, end, "-", "COUNT", str(COUNT))):
        for row in rows:
            yield message(row)
        end = f"({message(rows[-1])[0]}"


async def read_after(redis: Redis, stream: str, position: str, *, waits: bool = True) -> list[Row]:
    """Entries after a position, waiting up to a second for the first, or not at all."""
    block = ("BLOCK", BLOCK_MS) if waits else ()
    command = ("XREAD", "COUNT", COUNT, *block, "STREAMS", stream, position)
    return entries_of(await answered(redis, stream, command, BLOCK_MS / 1000 + MARGIN_S))


async def answered(redis: Redis, stream: str, command: Sequence[Argument], within_s: float) -> Any:
    """The reply. A client for reads has no deadline of its own: LostError where there is none in that time."""
    try:
        return await in_time(within_s, redis.ask(command))
    except TimeoutError as error:
        raise LostError(f"no answer to a read of {stream}") from error


def message(row: Row) -> tuple[str, bytes]:
    """Id and sealed message of an entry; empty where it has none."""
    return row[0].decode(), body_of(row[1])
