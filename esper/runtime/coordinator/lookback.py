"""The newest decisions on record, however much junk lies behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing

import structlog

from esper.bus import tail
from esper.bus.connect import Redis
from esper.errors import RefusedError
from esper.leyline.seal import Opened
from esper.leyline.succession import Said

MOST_AHEAD = 8_192
"""Decisions beyond those asked for that are looked at, where the server's clock has long been behind their ids."""

log = structlog.get_logger()


async def newest_said(
    redis: Redis, stream: str, read: Callable[[bytes, str], Opened], num: int, *, end: str = "+"
) -> list[tuple[str, Said]]:
    """Up to so many, each with its entry, oldest first; `end` may be the last of them.

    Anybody who can write to the server can write junk: it is passed over, told of in one line, and hides nothing that
    lies before it. Nor do copies: what was said once counts once, where the first lies of those that are met. Ahead of
    the server's clock a copy may be of any age: what lies there is looked at beside so many whose own time tells it.
    """
    found: dict[bytes, tuple[str, Opened, Said]] = {}
    dated: set[bytes] = set()
    num_refused, why = 0, ""
    async with aclosing(tail.backwards(redis, stream, end)) as entries:
        async for entry_id, sealed in entries:
            try:
                opened = read(sealed, entry_id)
            except RefusedError as error:
                num_refused, why = num_refused + 1, str(error)
                continue
            if isinstance(opened.message, Said):
                found.pop(opened.digest, None)
                found[opened.digest] = entry_id, opened, opened.message
                if not opened.clock_suspect:
                    dated.add(opened.digest)
                if len(dated) == num or len(found) == num + MOST_AHEAD:
                    break
    if num_refused:
        log.warning("entries.passed_over", stream=stream, num=num_refused, why=why)
    return list(_said_first(reversed(found.values())))[-num:]


def _said_first(entries: Iterable[tuple[str, Opened, Said]]) -> Iterator[tuple[str, Said]]:
    """Each producer counts what it says: ahead of the clock, what is not the next but an earlier word is a copy."""
    counts = Counter[tuple[str, int]]()
    for entry_id, opened, said in entries:
        who, number = (opened.header.producer, opened.header.incarnation), opened.header.sequence
        if number > counts[who] or not opened.clock_suspect:
            counts[who] = number
            yield entry_id, said
