"""Hands the entries of one stream to one consumer of one group, through restarts, lost connections and lost groups."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from typing import Any

import structlog

from esper.bus.backoff import Backoff
from esper.bus.connect import Redis
from esper.bus.delivery import Delivery, entries_of
from esper.bus.faults import LostError, NoGroupError, UnavailableError
from esper.bus.pending import Pending, Source
from esper.errors import BusError

BLOCK_MS = 500
MARGIN_S = 5.0  # a reader waits this much longer than its BLOCK, which the server may overrun
RECLAIM_EVERY_MS = 1000

log = structlog.get_logger()


class Inbox:
    """Own pending entries first, then new ones, and those of consumers that died. Acknowledges nothing.

    An entry is handed over once, until rewind(). With a group of one's own leave `reclaim_after_ms` None.
    """

    def __init__(
        self,
        redis_reader: Redis,
        redis_writer: Redis,
        stream: str,
        group: str,
        consumer: str,
        *,
        reclaim_after_ms: int | None = None,
        count: int = 256,
        block_ms: int = BLOCK_MS,
    ) -> None:
        self.reader, self.writer = redis_reader, redis_writer
        self.source = Source(stream, group, consumer)
        self._who = f"{group} of {stream}"
        self.reclaim_after_ms, self.count, self.block_ms = reclaim_after_ms, count, block_ms
        self.pending = Pending(redis_writer, self.source, count)
        self.num_history_lost = 0
        self.polled_at_s = time.monotonic()
        self._opened, self._sweeping = False, True
        self._reclaim_at_s, self._more_to_reclaim = 0.0, False
        self._stopping = asyncio.Event()

    async def open(self) -> None:
        """Make the group, at the beginning of the stream, unless it is there: before the first producer starts."""
        try:
            await self.writer.xgroup_create(self.source.stream, self.source.group, id="0", mkstream=True)
        except BusError as error:
            if "BUSYGROUP" not in str(error):
                raise
        self._opened = True

    def stop(self) -> None:
        """End batches() after the batch in hand, or when the read under way ends: within `block_ms`."""
        self._stopping.set()

    def rewind(self) -> None:
        """Hand over again whatever is still pending: after a settlement was refused."""
        self.pending.restart(forget=True)
        self._sweeping = True

    async def batches(self, *, until_idle: bool = False) -> AsyncGenerator[list[Delivery], None]:
        """Batches, without end; `until_idle` ends once nothing is new and all that is pending is in hand."""
        backoff = Backoff()
        while not self._stopping.is_set():
            try:
                batch = await self._next(until_idle)
            except NoGroupError as error:
                self._on_history_lost(error)
                continue
            except UnavailableError as error:
                await self._on_lost(error, backoff)
                continue
            self.polled_at_s = time.monotonic()
            backoff.reset()
            self.writer.outage.ends(self._who)
            if batch:
                yield batch
            elif until_idle and not self._more_to_reclaim:
                return

    async def _next(self, until_idle: bool) -> list[Delivery]:
        if not self._opened:
            await self.open()
        if self.reclaim_after_ms is not None and time.monotonic() >= self._reclaim_at_s:
            await self._reclaim(self.reclaim_after_ms)
        if self._sweeping:
            if batch := await self.pending.sweep():
                return batch
            self._sweeping = False
        return await self._new(None if until_idle else self._block_ms())

    async def _new(self, block_ms: int | None) -> list[Delivery]:
        """Entries that nobody of the group was handed yet. Not to be cancelled: they may be delivered already."""
        stream, group, consumer = self.source
        block: list[Any] = [] if block_ms is None else ["BLOCK", block_ms]
        command = ["XREADGROUP", "GROUP", group, consumer, "COUNT", self.count, *block, "STREAMS", stream, ">"]
        try:
            async with asyncio.timeout((block_ms or 0) / 1000 + MARGIN_S):
                entries = entries_of(await self.reader.execute_command(*command))
        except TimeoutError as error:
            raise LostError(f"no answer to a read of {stream}") from error
        return await self.pending.taken(entries, {entry_id.decode(): 1 for entry_id, _ in entries})

    async def _reclaim(self, min_idle_ms: int) -> None:
        """Every second or sooner, with jitter; at once where the last look did not reach the end."""
        before = self.pending.num_reclaimed
        self._more_to_reclaim = await self.pending.reclaim(min_idle_ms)
        self._sweeping |= self.pending.num_reclaimed > before
        interval_s = min(max(min_idle_ms, 1), RECLAIM_EVERY_MS) / 1000 * random.uniform(0.8, 1.0)
        self._reclaim_at_s = 0.0 if self._more_to_reclaim else time.monotonic() + interval_s

    def _block_ms(self) -> int:
        """As long as asked for, but not past the next look for entries to reclaim. Never 0, which means for ever."""
        if self.reclaim_after_ms is None:
            return self.block_ms
        left_ms = int((self._reclaim_at_s - time.monotonic()) * 1000)
        return max(1, min(self.block_ms, left_ms))

    def _on_history_lost(self, error: NoGroupError) -> None:
        if self._opened:
            self.num_history_lost += 1
            log.error("history.lost", stream=self.source.stream, group=self.source.group, why=str(error))
        self._opened = False
        self.rewind()

    async def _on_lost(self, error: BusError, backoff: Backoff) -> None:
        """Wait, and begin again with the own pending list: the server may have delivered what never arrived."""
        self.writer.outage.begins(self._who, error)
        self.pending.restart()
        self._sweeping = True
        try:
            await asyncio.wait_for(self._stopping.wait(), backoff.next_s())
        except TimeoutError:
            return
