"""One consumer's own pending entries: handed over again after a restart, and added to from consumers that died."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias

import structlog

from esper.bus.connect import Redis
from esper.bus.delivery import FIELD, Delivery, Entry, entries_of

# From the third delivery on an entry is handed over alone: one that kills its consumer then takes no neighbour along.
TOGETHER = 2
NUM_HELD_BEFORE_LOOK = 8192

Attempts: TypeAlias = dict[str, int]

log = structlog.get_logger()


class Source(NamedTuple):
    """Where entries come from, and in whose name."""

    stream: str
    group: str
    consumer: str


class Pending:
    """Walks the own pending list by a kept cursor. Remembers what is in hand, so that nothing is handed over twice."""

    def __init__(self, redis: Redis, source: Source, count: int) -> None:
        self.redis, self.source, self.count = redis, source, count
        self.num_reclaimed = 0
        self.num_vanished = 0
        self._cursor, self._claim_cursor = "0-0", "0-0"
        self._held: set[str] = set()
        self._look_at = NUM_HELD_BEFORE_LOOK

    def restart(self, *, forget: bool = False) -> None:
        """Walk from the beginning; `forget` what is in hand to have it handed over again."""
        self._cursor = "0-0"
        if forget:
            self._held.clear()

    async def sweep(self) -> list[Delivery]:
        """The next own pending entries that are not in hand; empty at the end of the list."""
        while rows := await self._page(self._cursor):
            if attempts := self._next_run(rows):
                entries = await self._again(len(attempts))
                self._cursor = next(reversed(attempts))
                if deliveries := await self.taken(entries, attempts):
                    return deliveries
            else:
                self._cursor = rows[-1][0]
        return []

    async def reclaim(self, min_idle_ms: int) -> bool:
        """Take over entries idle for so long, a bounded number; whether there is more to look at."""
        stream, group, consumer = self.source
        reply: Any = await self.redis.execute_command(
            *("XAUTOCLAIM", stream, group, consumer, min_idle_ms, self._claim_cursor, "COUNT", self.count, "JUSTID")
        )
        self._claim_cursor = reply[0].decode()
        claimed = {entry_id.decode() for entry_id in reply[1]} - self._held
        if claimed:
            self.num_reclaimed += len(claimed)
            log.info("entries.reclaimed", stream=stream, group=group, count=len(claimed))
            self.restart()
        return self._claim_cursor != "0-0"

    async def taken(self, entries: Sequence[Entry], attempts: Attempts) -> list[Delivery]:
        """Deliveries of these entries, from now on in hand. What was deleted while pending is acknowledged here."""
        deliveries, vanished = [], []
        for raw_id, fields in entries:
            entry_id = raw_id.decode()
            if not fields:
                vanished.append(entry_id)
            elif entry_id in attempts:  # else the list changed between two commands; the next page has it
                body = fields.get(FIELD, b"")
                deliveries.append(Delivery(*self.source[:2], entry_id, body, attempts[entry_id], self.source.consumer))
        if vanished:
            await self._bury(vanished)
        self._held.update(delivery.entry_id for delivery in deliveries)
        if len(self._held) > self._look_at:
            await self._look()
        return deliveries

    async def _page(self, after: str) -> list[tuple[str, int]]:
        """Own pending ids after one, with how often each was delivered."""
        stream, group, consumer = self.source
        start = "-" if after == "0-0" else f"({after}"
        rows: Any = await self.redis.xpending_range(stream, group, start, "+", self.count, consumer)
        return [(row["message_id"].decode(), row["times_delivered"]) for row in rows]

    def _next_run(self, rows: Sequence[tuple[str, int]]) -> Attempts:
        """The next neighbours to hand over in one batch. Moves the cursor past those in hand before them."""
        skipped = list(takewhile(lambda row: row[0] in self._held, rows))
        rest = rows[len(skipped) :]
        if skipped:
            self._cursor = skipped[-1][0]
        if rest and rest[0][1] >= TOGETHER:
            rest = rest[:1]
        else:
            rest = list(takewhile(lambda row: row[0] not in self._held and row[1] < TOGETHER, rest))
        return {entry_id: delivered + 1 for entry_id, delivered in rest}

    async def _again(self, count: int) -> list[Entry]:
        """Read own entries again from the cursor; this counts as a delivery."""
        stream, group, consumer = self.source
        return entries_of(
            await self.redis.execute_command(
                *("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", stream, self._cursor)
            )
        )

    async def _bury(self, vanished: Sequence[str]) -> None:
        stream, group, _ = self.source
        if not self.num_vanished:  # the counter tells how many more; one line each would be a flood
            log.warning("entries.vanished", stream=stream, group=group, first=vanished[0])
        self.num_vanished += len(vanished)
        await self.redis.execute_command("XACK", stream, group, *vanished)

    async def _look(self) -> None:
        """Drop from memory what is no longer pending."""
        pending: set[str] = set()
        after = "0-0"
        while rows := await self._page(after):
            pending.update(entry_id for entry_id, _ in rows)
            after = rows[-1][0]
        self._held &= pending
        self._look_at = max(NUM_HELD_BEFORE_LOOK, 2 * len(self._held))
