"""Beside a process's own work: trims its streams, takes away consumers that are gone, says what it counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import structlog
from prometheus_client import CollectorRegistry

from esper.bus import names
from esper.bus.connect import Redis, server_ms
from esper.bus.group.inbox import Inbox
from esper.bus.upkeep import counters
from esper.bus.upkeep.survey import survey
from esper.bus.upkeep.tidy import IDLE_MS, drop_idle_consumers
from esper.bus.upkeep.trim import Retention, retain, trim
from esper.errors import BusError
from esper.runtime.operations.figures import StreamGauges, counts_of
from esper.runtime.operations.trimming import Trimmer

LOOK_EVERY_S = 1.0
TRIM_EVERY_S = 5.0
DROP_EVERY_S = 60.0
SAY_AT_LEAST_EVERY_S = 10.0
SETTLED_MS = 120_000
"""What every group has settled stays this long for those who only look: `esper status`, `esper tail`."""
MOST_SETTLED = 50_000
"""On a stream longer than this it goes at once: a flood of 20,000 a second would fill a GB in two minutes."""
KEPT = Retention(max_age_s=7 * 86_400, max_length=100_000)

log = structlog.get_logger()


@dataclass
class StreamUpkeep:
    """What one process keeps in order: streams that it reads in a group shared by its role, and `retained` ones.

    `gauges` are for the one process of a run that shows how all streams stand.
    """

    run_id: str
    process: str
    redis: Redis
    registry: CollectorRegistry
    inboxes: Sequence[Inbox] = ()
    retained: Sequence[str] = ()
    gauges: StreamGauges | None = None
    logs: Trimmer | None = None
    kept: Retention = KEPT
    settled_ms: int = SETTLED_MS
    most_settled: int = MOST_SETTLED
    idle_ms: int = IDLE_MS
    _said: Sequence[counters.Count] = ()
    _due_s: dict[str, float] = field(default_factory=dict)

    async def look(self) -> None:
        """Do what is due."""
        await self._say()
        await self.shorten()
        if self._is_due("trim", TRIM_EVERY_S):
            await self.trim()
            if self.gauges is not None:
                self.gauges.show(await survey(self.redis, self.run_id))
        if self._is_due("drop", DROP_EVERY_S):
            await self.drop()

    async def shorten(self) -> None:
        """Free all that is settled on streams that have grown too long."""
        for stream, group in self._settled():
            if await self.redis.xlen(stream) > self.most_settled:
                await trim(self.redis, stream, [group])

    async def trim(self) -> None:
        """Free what is settled, or too old where nobody settles."""
        now_ms = await self._now_ms()
        for stream, group in self._settled():
            await trim(self.redis, stream, [group], before_ms=now_ms - self.settled_ms)
        for stream in self.retained:
            await retain(self.redis, stream, self.kept, now_ms)
        if self.logs is not None:
            await self.logs.shorten()

    async def drop(self) -> None:
        """Take away consumers that read no more and hold nothing, and what processes said that are gone."""
        for inbox in self.inboxes:
            stream, group, consumer = inbox.source
            if dropped := await drop_idle_consumers(self.redis, stream, group, consumer, self.idle_ms):
                log.info("consumers.dropped", stream=stream, group=group, consumers=dropped)
        await counters.forget_gone(self.redis, self.run_id, await self._now_ms())

    def _settled(self) -> Iterator[tuple[str, str]]:
        """Streams that are trimmed below what is settled, and their groups."""
        for inbox in self.inboxes:
            stream, group, _ = inbox.source
            if names.row_of(stream).trimming == names.SETTLED:
                yield stream, group

    async def _say(self) -> None:
        """At most once a second, and only when something has changed, or to be seen alive."""
        counts = counts_of(self.registry)
        if counts != self._said or self._is_due("say", SAY_AT_LEAST_EVERY_S):
            now_ms = await self._now_ms()
            await counters.publish(self.redis, self.run_id, self.process, counts, now_ms)
            self._said = counts

    async def _now_ms(self) -> int:
        return await server_ms(self.redis, names.key(self.run_id, "counters"))

    def _is_due(self, what: str, every_s: float) -> bool:
        now_s = time.monotonic()
        if now_s < self._due_s.get(what, 0.0):
            return False
        self._due_s[what] = now_s + every_s
        return True


async def look_again(upkeep: StreamUpkeep) -> None:
    """Without end. Where Redis does not answer, its turn comes again: who needs it for more says that it is gone."""
    while True:
        try:
            await upkeep.look()
        except BusError as error:
            log.debug("tidying.failed", why=str(error))
        await asyncio.sleep(LOOK_EVERY_S)
