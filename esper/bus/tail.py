"""Plain reads, which move no group and acknowledge nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import structlog

from esper.bus.backoff import Backoff
from esper.bus.connect import Redis
from esper.bus.delivery import Row, body_of, entries_of
from esper.bus.faults import LostError

BLOCK_MS = 1000
MARGIN_S = 5.0
COUNT = 256

log = structlog.get_logger()


async def last(redis: Redis, stream: str, n: int) -> list[tuple[str, bytes]]:
    """The newest n entries, oldest first: id and sealed message."""
    rows = await redis.ask(("XREVRANGE", stream, "+", "-", "COUNT", n))
    return [message(row) for row in reversed(rows)]


async def follow(redis: Redis, stream: str, since: str = "$") -> AsyncGenerator[tuple[str, bytes], None]:
    """Every entry after `since`, without end, also across lost connections; `$`: after the newest one of now."""
    backoff = Backoff()
    position = since
    while True:
        try:
            position = await newest_id(redis, stream) if position == "$" else position
            rows = await read_after(redis, stream, position)
        except LostError as error:
            if not backoff.failures:
                log.warning("tail.interrupted", stream=stream, why=str(error))
            await asyncio.sleep(backoff.next_s())
            continue
        backoff.reset()
        for row in rows:
            position, sealed = message(row)
            yield position, sealed


async def newest_id(redis: Redis, stream: str) -> str:
    """Id of the newest entry, `0-0` where there is none."""
    entries = await last(redis, stream, 1)
    return entries[0][0] if entries else "0-0"


async def backwards(redis: Redis, stream: str, end: str = "+") -> AsyncGenerator[tuple[str, bytes], None]:
    """What the stream holds up to an entry id, newest first."""
    while rows := await redis.ask(("XREVRANGE", stream, end, "-", "COUNT", COUNT)):
        for row in rows:
            yield message(row)
        end = f"({message(rows[-1])[0]}"


async def read_after(redis: Redis, stream: str, position: str, *, waits: bool = True) -> list[Row]:
    """Entries after a position, waiting up to a second for the first, or not at all."""
    block = ("BLOCK", BLOCK_MS) if waits else ()
    command = ("XREAD", "COUNT", COUNT, *block, "STREAMS", stream, position)
    try:
        async with asyncio.timeout(BLOCK_MS / 1000 + MARGIN_S):
            return entries_of(await redis.ask(command))
    except TimeoutError as error:
        raise LostError(f"no answer to a read of {stream}") from error


def message(row: Row) -> tuple[str, bytes]:
    """Id and sealed message of an entry; empty where it has none."""
    return row[0].decode(), body_of(row[1])
