"""The newest decisions on record, however much junk lies behind them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import structlog

from esper.bus import tail
from esper.bus.connect import Redis
from esper.errors import RefusedError
from esper.leyline.seal import Opened
from esper.leyline.succession import Said

log = structlog.get_logger()


async def newest_said(
    redis: Redis, stream: str, read: Callable[[bytes, str], Opened], num: int, *, end: str = "+"
) -> list[tuple[str, Said]]:
    """Up to so many, each with its entry, oldest first; `end` may be the last of them.

    Anybody who can write to the server can write junk: it is passed over, told of in one line, and hides nothing that
    lies before it. Nor do copies: what was said once counts once, where the first lies of those that are met.
    """
    found: dict[bytes, tuple[str, Said]] = {}
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
                found[opened.digest] = entry_id, opened.message
                if len(found) == num:
                    break
    if num_refused:
        log.warning("entries.passed_over", stream=stream, num=num_refused, why=why)
    return list(reversed(found.values()))
