"""Looks at Redis once a second for /readyz: whether it answers, how soon, what time it has, how much lies unread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from esper.bus.connect import Redis, ServerClock, client, server_ms
from esper.bus.faults import UnavailableError
from esper.bus.group.groups import group_of
from esper.bus.outage import Outage
from esper.errors import BusError
from esper.runtime.ending import meanwhile
from esper.runtime.operations.health import Health, Source

LOOK_EVERY_S = 1.0
LAG_EVERY = 5
"""Looks; what lies unread is asked for at each of these only."""
ANSWER_S = 1.0

log = structlog.get_logger()


class Look:
    """One process's look, on a connection of its own: one that is stuck behind a blocked write would say nothing.

    It puts the process's clock right by what it hears, and nobody else need ask.
    """

    def __init__(
        self, redis: Redis, health: Health, outage: Outage | None = None, clock: ServerClock | None = None
    ) -> None:
        self.redis, self.health, self.clock = redis, health, clock
        self.outage = redis.outage if outage is None else outage
        self._count = 0

    async def look(self) -> None:
        """Note what is seen; a Redis that is away is what was seen."""
        vitals, clock = self.health.vitals, self.health.clock
        try:
            await self._compare_clocks()
            if self._count % LAG_EVERY == 0:
                vitals.lags_s = await self._lags()
            self._count += 1
        except BusError as error:
            vitals.why, vitals.up_since_s = str(error), None
            vitals.lags_s, self._count = {}, 0  # what lies unread is not known, and asked for at the first answer
            return
        vitals.answered_s, vitals.why, vitals.waiting = clock(), "", self.outage.said
        if vitals.waiting:
            vitals.up_since_s = None
        elif vitals.up_since_s is None:
            vitals.up_since_s = clock()

    async def _lags(self) -> dict[Source, float]:
        """Of what this process reads; without what the server does not let it ask."""
        lags: dict[Source, float] = {}
        for source in self.health.sources:
            try:
                lags[source] = await lag_s(self.redis, *source)
            except UnavailableError:
                raise
            except BusError as error:
                log.debug("lag.unknown", stream=source[0], why=str(error))
        return lags

    async def _compare_clocks(self) -> None:
        """Halfway through the round trip is when the server read its clock; of several who dates what is read here, or
        what the process's clock is of."""
        stream = next((stream for stream, _ in self.health.sources), "")
        before_ns, began_s = time.time_ns(), time.monotonic()
        there_ms = await (server_ms(self.redis, stream) if self.clock is None else self.clock.look(self.redis))
        vitals = self.health.vitals
        vitals.round_trip_s = time.monotonic() - began_s
        vitals.skew_s = (before_ns / 1e6 + vitals.round_trip_s * 500 - there_ms) / 1000


async def lag_s(redis: Redis, stream: str, group: str) -> float:
    """Age of the oldest entry that was not handed to this group; 0: there is none, or no such group yet."""
    facts = await group_of(redis, stream, group)
    if facts is None:
        return 0.0
    last = facts["last-delivered-id"]
    rows = await redis.ask(("XRANGE", stream, b"(" + last, "+", "COUNT", "1"))
    if not rows:
        return 0.0
    return max(0, await server_ms(redis, stream) - int(rows[0][0].partition(b"-")[0])) / 1000


@asynccontextmanager
async def seen(
    url: str, health: Health, outage: Outage | None = None, clock: ServerClock | None = None
) -> AsyncIterator[None]:
    """Look now, and again every second while the block runs. `outage` is of the writer that this process works with."""
    async with client(url, ANSWER_S) as redis:
        look = Look(redis, health, outage, clock)
        await look.look()
        async with meanwhile(look_again(look)):
            yield


async def look_again(look: Look) -> None:
    """Without end."""
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        await look.look()
