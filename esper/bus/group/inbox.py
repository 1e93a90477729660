"""Hands the entries of one stream to one consumer of one group, through restarts, lost connections and lost groups."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Sequence

import structlog

from esper.bus.connect import Redis
from esper.bus.drive import drive
from esper.bus.faults import UnavailableError
from esper.bus.group.consumer import STEADY, Consumer, Pace
from esper.bus.group.delivery import Delivery
from esper.bus.group.pending import Pending, Source
from esper.bus.protocol import Steps, Surroundings, T

LAST_READ_S = 1.0

log = structlog.get_logger()


class Inbox:
    """Own pending entries first, then new ones, and those of consumers that died. Acknowledges nothing.

    An entry is handed over once, until rewind(). With a group of one's own leave the pace's `reclaim_after_ms` None.
    Reads are never cut short: a task cancelled in batches() leaves the read under way to whoever iterates next.
    """

    def __init__(
        self, redis_reader: Redis, redis_writer: Redis, stream: str, group: str, consumer: str, pace: Pace = STEADY
    ) -> None:
        self.reader, self.writer = redis_reader, redis_writer
        self.source = Source(stream, group, consumer)
        surroundings = Surroundings(time.monotonic, random.Random(), redis_writer.outage)
        self.consumer = Consumer(self.source, pace, surroundings)
        redis_writer.holders[self.source] = self.consumer.pending
        self.held_back = False
        """Whether its reader deliberately asks for nothing more: enough is in hand."""
        self._stopping = asyncio.Event()
        self._reading: asyncio.Task[list[Delivery]] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._out: list[Delivery] = []

    @property
    def pending(self) -> Pending:
        """What is in hand, and what was met on the pending list."""
        return self.consumer.pending

    @property
    def shared(self) -> bool:
        """Whether consumers of the group take over from one another."""
        return self.consumer.pace.reclaim_after_ms is not None

    @property
    def busy(self) -> bool:
        """Whether the next batch is being read already."""
        return self._reading is not None

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    @property
    def num_history_lost(self) -> int:
        """How often this consumer made the group again."""
        return self.consumer.num_history_lost

    @property
    def num_breaks(self) -> int:
        """How often a read broke off, or the group was made again: what Redis holds may be older since."""
        return self.consumer.num_interrupted + self.consumer.num_history_lost

    @property
    def polled_at_s(self) -> float:
        """When the server last answered a read, by the monotonic clock."""
        return self.consumer.polled_at_s

    async def open(self) -> None:
        """Make the group, at the beginning of the stream, unless it is there: before the first producer starts."""
        await self._drive(self.consumer.open())

    def stop(self) -> None:
        """End batches() after the batch in hand, or when the read under way ends: within `block_ms`."""
        self._stopping.set()

    def rewind(self) -> None:
        """Hand over again whatever is still pending: after a settlement was refused."""
        self.consumer.rewind(self._read_ahead())

    def try_apart(self) -> None:
        """From now on an entry that comes alone is not counted as tried until begin() is asked for it.

        For a reader that lets batches wait, or holds on to what it has handled: there a process dies, or loses its
        leases, of other things than the entry that it was handed last.
        """
        self.pending.apart = True

    async def begin(self, delivery: Delivery) -> bool:
        """Whether an entry that came alone may be tried now: in company of nothing, and settled at once."""
        return await self._drive(self.consumer.begin(delivery))

    async def absolve(self) -> None:
        """Before rewind(), by a reader that lives: what it has in hand has failed no more often than before."""
        await self._drive(self.consumer.absolve())

    async def acquit(self, entry_ids: Sequence[str]) -> None:
        """For a reader that holds on to what it has handled: these have failed no more often than before."""
        await self._drive(self.consumer.acquit(entry_ids))

    async def batches(self, *, until_idle: bool = False) -> AsyncGenerator[list[Delivery], None]:
        """Batches, without end; `until_idle` ends once nothing is new and all that is pending is in hand.

        A batch counts as handled when the next one is asked for. Where an iteration ended at a batch, by a break or a
        cancellation, the next hands over again what is still pending of it.
        """
        if self._out:
            self.consumer.abandon(self._out)
        while not self._stopping.is_set():
            self._out = await self._next(wait=not until_idle)
            if self._out:
                if self.consumer.may_read_ahead and self._out[-1].attempts == 1:
                    self._reading = asyncio.create_task(self._read(self.consumer.ahead()))
                    await sent()
                yield self._out
                self._out = []
            elif until_idle and self.consumer.idle:
                return

    async def give_up(self) -> None:
        """Cut the read under way short, before its client hangs up; what it would have brought stays pending."""
        while self._reading is not None and not self._reading.done():
            self._reading.cancel()  # which a library may swallow that comes together with the reply it waits for
            await asyncio.wait([self._reading], timeout=LAST_READ_S)

    async def release(self) -> int:
        """Hand back what is pending, once all in hand is settled and batches() has ended; how many entries.

        Another consumer gets them within a second, whatever its `reclaim_after_ms`. In a group of one's own nothing is
        handed back. A server that is gone is not waited for: what is idle for long enough is taken over anyway.
        """
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=LAST_READ_S)
            await self.give_up()  # no answer by now: what it brings too late waits for a reclaim
        try:
            released = await self._drive(self.consumer.release(self._read_ahead()))
        except UnavailableError as error:
            log.warning("entries.not_released", stream=self.source.stream, group=self.source.group, why=str(error))
            return 0
        if released:
            log.info("entries.released", stream=self.source.stream, group=self.source.group, count=released)
        return released

    async def _next(self, *, wait: bool) -> list[Delivery]:
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(self.consumer.next_batch(wait=wait)))
        if not self._reading.done():
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        reading, self._reading = self._reading, None
        return reading.result()

    async def _read(self, steps: Steps[list[Delivery]]) -> list[Delivery]:
        """A read under way; at its end whoever waits for it is woken, a turn of the loop sooner than by its task."""
        try:
            return await self._drive(steps)
        finally:
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    def _read_ahead(self) -> list[Delivery]:
        """What was read, and not handed over yet."""
        reading = self._reading
        if reading is None or not reading.done() or reading.cancelled() or reading.exception():
            return []
        return reading.result()

    async def _drive(self, steps: Steps[T]) -> T:
        return await drive(steps, self.reader, self.writer, self._stopping)


async def sent() -> None:
    """Let what was just asked for leave, before a batch keeps this thread busy: the server is at work meanwhile.

    One turn of the loop for the task to write; uvloop sends what was written at the end of that turn.
    """
    await asyncio.sleep(0)
    await asyncio.sleep(0)
