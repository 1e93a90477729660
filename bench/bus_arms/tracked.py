"""How many objects the collector would have to look at: alive when a batch has been handled, with the collector off."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from bus_arms.bare import taken
from bus_arms.ours import served
from bus_arms.streams import GROUP, check_consumed, fill, plain
from bus_arms.traffic import KEY, RUN, opener, sealed
from esper.bench.memory.tracking import tracked
from esper.bus import names
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opened


async def ours(url: str, directory: str, what: str, num: int) -> int:
    """Tracked objects that one batch of `num` messages has added by the end of its last handler."""
    stream, handled, counts = names.key(RUN, what), list[str](), list[int]()
    await fill(url, stream, sealed(directory, what, num))

    def handle(opened: Opened) -> Iterable[tuple[str, bytes]]:
        handled.append(opened.entry_id)
        if len(handled) == num:
            counts.append(count())
        return ()

    by = opener(directory, what, ReplayGuard())
    with tracked() as count:
        await served(url, stream, by, handle)
    await check_consumed(url, stream, handled, num)
    return counts[0]


async def bare(url: str, directory: str, what: str, num: int) -> int:
    """The same of the client's own loop."""
    stream = f"bare:{what}"
    await fill(url, stream, sealed(directory, what, num))
    with tracked() as count:
        async with plain(url) as redis:
            entries = await taken(redis, stream)
            for _, fields in entries:
                hmac.digest(KEY, fields[b"m"], "sha256")
            alive = count()
            await redis.xack(stream, GROUP, *[entry_id for entry_id, _ in entries])
    await check_consumed(url, stream, [entry_id for entry_id, _ in entries], num)
    return alive
