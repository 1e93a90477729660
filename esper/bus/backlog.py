"""How much of a stream waits for a group; whether its producers should add more."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from esper.bus.connect import Redis
from esper.bus.survey import lag_of
from esper.errors import BusError

MOST_WAITING = 2_000  # entries: some 60,000 packets in frames

log = structlog.get_logger()


class Backlog:
    """Looks when it is told to, off the way of what is added."""

    def __init__(self, redis: Redis, stream: str, group: str, most: int = MOST_WAITING) -> None:
        self.redis, self.stream, self.group, self.most = redis, stream, group, most
        self.bearable = asyncio.Event()
        """Set while no more waits than should."""
        self.bearable.set()

    async def look(self) -> None:
        """Ask how many entries nobody has settled yet; from half of the most on down, more is welcome again."""
        waiting = await self._waiting()
        if waiting > self.most and self.bearable.is_set():
            log.warning("backlog.unbearable", stream=self.stream, group=self.group, most=self.most)
            self.bearable.clear()
        elif waiting <= self.most / 2 and not self.bearable.is_set():
            log.info("backlog.bearable", stream=self.stream, group=self.group)
            self.bearable.set()

    async def _waiting(self) -> float:
        """Not handed out, or not settled; infinite where there are more of the first than a server of 6.2 counts."""
        try:
            groups: Any = await self.redis.xinfo_groups(self.stream)
        except BusError as error:
            if "no such key" in str(error):
                return 0
            raise
        for facts in groups:
            if facts["name"] == self.group.encode():
                lag = await lag_of(self.redis, self.stream, facts)
                return float("inf") if lag is None else lag + int(facts["pending"])
        return 0
