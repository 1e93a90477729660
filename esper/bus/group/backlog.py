"""How much of a stream waits for a group, and so how much more its producers should add."""

from __future__ import annotations

import asyncio

import structlog

from esper.bus.connect import Redis
from esper.bus.group.groups import group_of
from esper.bus.upkeep.survey import MOST_COUNTED, lag_of

MOST_WAITING = MOST_COUNTED  # entries: some 32,000 packets in frames; a server of 6.2 counts no further

log = structlog.get_logger()


class Backlog:
    """Hands out what a stream has room for. Looks when it is told to, off the way of what is added."""

    def __init__(self, redis: Redis, stream: str, group: str, most: int = MOST_WAITING) -> None:
        self.redis, self.stream, self.group, self.most = redis, stream, group, most
        self.spent = asyncio.Event()
        """Set while nothing more is welcome until the next look."""
        self._welcome = asyncio.Event()
        self._is_unbearable = False
        self._grant(most)

    async def take(self) -> None:
        """Return once one more entry is welcome; the caller adds it."""
        while self._room < 1:
            await self._welcome.wait()
        self._grant(self._room - 1)

    async def look(self) -> None:
        """Ask how many entries nobody has settled yet: until the next look as many are welcome as are missing to the
        most, so that what waits stays near it, and producers never stand still while it is folded."""
        num_waiting = await waiting(self.redis, self.stream, self.group)
        self._grant(self.most - num_waiting)
        if num_waiting >= self.most and not self._is_unbearable:
            self._is_unbearable = True
            log.warning("backlog.unbearable", stream=self.stream, group=self.group, most=self.most)
        elif num_waiting <= self.most / 2 and self._is_unbearable:
            self._is_unbearable = False
            log.info("backlog.bearable", stream=self.stream, group=self.group)

    def _grant(self, room: float) -> None:
        self._room = room
        if room >= 1:
            self.spent.clear()
            self._welcome.set()
        else:
            self._welcome.clear()
            self.spent.set()


async def waiting(redis: Redis, stream: str, group: str) -> float:
    """Not handed out, or not settled; infinite where there are more of the first than a server of 6.2 counts."""
    facts = await group_of(redis, stream, group)
    if facts is None:
        return 0
    lag = await lag_of(redis, stream, facts)
    return float("inf") if lag is None else lag + int(facts["pending"])
