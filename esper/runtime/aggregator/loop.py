"""The loop of an aggregator: many deliveries become few aggregates, settled together once a window closes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog
from google.protobuf.message import Message

from esper.bus.connect import ServerClock
from esper.bus.group.delivery import MAX_ATTEMPTS, Delivery
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement, reject_spent
from esper.bus.names import beside
from esper.bus.turns import Turns
from esper.errors import RefusedError, StaleLeaseError
from esper.leyline import contracts as pb
from esper.leyline.kinds import kind_of, type_of
from esper.leyline.seal import Opened, Opener
from esper.runtime.aggregator.figures import TierFigures
from esper.runtime.aggregator.lost_state import VERSION, Counted, Record
from esper.runtime.ending import meanwhile
from esper.runtime.quitting import unless_silent
from esper.runtime.serving.refusals import Refusals

MOST_IN_HAND = 2048  # deliveries; then they are settled early
NUM_QUEUED = 4  # batches read ahead
RECLAIM_AFTER_MS = 5_000  # idle for so long, an entry is taken over from its consumer

log = structlog.get_logger()


class State(Protocol):
    """What is on record; `expected` is the version that the record must still have when it is replaced."""

    @property
    def expected(self) -> bytes | None: ...


class Tier(Protocol):
    """The rule that the loop carries out. All it has taken in comes out with the next `take`."""

    @property
    def state(self) -> State: ...
    def load(self, fields: Mapping[bytes, bytes]) -> None: ...
    def wait_s(self, now_s: float) -> float | None: ...
    def take(self, now_s: float) -> list[pb.AggregatedTelemetry]: ...
    def changed(self) -> dict[str, bytes]: ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Where bytes become messages that are believed, where the rule takes them in, and where its own are sealed."""

    read: Callable[[Delivery], Opened]
    fold: Callable[[Opened, float], None]
    seal: Callable[[pb.AggregatedTelemetry], bytes]


@dataclass(frozen=True, slots=True)
class Target:
    """The stream that aggregates go to, and the hash beside it that keeps what was folded."""

    stream: str
    record: str
    counted_in: Counted | None = None


class Aggregator:
    """Joins inboxes, a rule and an outbox. All in hand is settled at once: memory never runs ahead of the record.

    Sources are acknowledged in the same call. On a Cluster those in another slot than the target are right after it:
    what was folded but not acknowledged comes again and is known by the record.
    """

    def __init__(
        self,
        tier: Tier,
        pipeline: Pipeline,
        inboxes: Sequence[Inbox],
        outbox: Outbox,
        target: Target,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tier, self.pipeline, self.inboxes, self.outbox, self.target = tier, pipeline, inboxes, outbox, target
        self.clock, self.refusals, self.figures = clock, Refusals(), TierFigures()
        self._hand: list[tuple[Delivery, Opened]] = []
        self._refused: list[tuple[Delivery, RefusedError | None, bool]] = []  # the last: whether :dead is told
        self._queue: asyncio.Queue[tuple[int, list[Delivery]]] = asyncio.Queue(NUM_QUEUED)
        self._generation = 0
        self._slot = beside(target.record, "")
        self._sources_by_stream = {inbox.source.stream: inbox for inbox in inboxes}
        for inbox in inboxes:
            inbox.try_apart()
        self.turns = Turns(outbox.redis, target.record)
        self.record = Record(outbox, target.stream, target.record, target.counted_in)

    async def run(self, stopping: asyncio.Event | None = None, *, until_idle: bool = False) -> None:
        """Fold until told to stop, or until nothing is left.

        What is in hand then is settled, as a partial window; what was read ahead is handed back to the group. Where
        Redis is silent both stay pending.
        """
        stopping = stopping or asyncio.Event()
        async with meanwhile(self._stop_on(stopping)):
            await unless_silent(self._fold(until_idle), stopping, self.outbox.redis, self.target.record, self.inboxes)

    async def _fold(self, until_idle: bool) -> None:
        await self._load()
        while not await self._pass(until_idle):
            log.info("pending.read_again")
        for inbox in self.inboxes:
            await inbox.release()

    async def _pass(self, until_idle: bool) -> bool:
        """Read until the inboxes end, then settle what is in hand; whether every settlement was accepted."""
        generation = self._generation
        readers = [asyncio.create_task(self._forward(inbox, until_idle)) for inbox in self.inboxes]
        ended = asyncio.gather(*readers)
        try:
            while not ended.done() or not self._queue.empty():
                await self._turn(ended)
            await ended
            return await self.settle() and generation == self._generation
        finally:
            ended.cancel()
            with suppress(asyncio.CancelledError):
                await ended

    async def _turn(self, ended: asyncio.Future[Any]) -> None:
        """Wait for a batch, or until what is in hand is due; then settle if it is."""
        batch = await self._next(ended)
        if batch is not None and batch[0] == self._generation:
            if batch[1][0].alone and not batch[1][0].spent:
                await self._try_alone(batch[1][0])
            else:
                self._take_in(batch[1])
        if self._due_s() == 0:
            await self.settle()

    async def _next(self, ended: asyncio.Future[Any]) -> tuple[int, list[Delivery]] | None:
        with suppress(asyncio.QueueEmpty):
            return self._queue.get_nowait()
        arrival = asyncio.create_task(self._queue.get())
        try:
            await asyncio.wait([arrival, ended], timeout=self._due_s(), return_when=asyncio.FIRST_COMPLETED)
            return arrival.result() if arrival.done() else None
        finally:
            arrival.cancel()

    async def _forward(self, inbox: Inbox, until_idle: bool) -> None:
        async for batch in inbox.batches(until_idle=until_idle):
            await self._queue.put((self._generation, batch))

    async def _stop_on(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        for inbox in self.inboxes:
            inbox.stop()

    def _due_s(self) -> float | None:
        """Seconds until what is in hand must be settled; 0: now; None: not before something comes."""
        if len(self._hand) + len(self._refused) >= MOST_IN_HAND:
            return 0.0
        wait_s = self.tier.wait_s(self.clock())
        return 0.0 if wait_s is None and (self._hand or self._refused) else wait_s

    def _take_in(self, batch: Sequence[Delivery]) -> None:
        read, fold, now_s = self.pipeline.read, self.pipeline.fold, self.clock()
        for delivery in batch:
            if delivery.attempts > MAX_ATTEMPTS:
                self._refused.append((delivery, None, True))
                continue
            try:
                opened = read(delivery)
                fold(opened, now_s)
            except RefusedError as error:
                is_told = self.refusals.note(delivery.stream, delivery.entry_id, error)
                self._refused.append((delivery, error, is_told))
            else:
                self._hand.append((delivery, opened))

    async def _try_alone(self, delivery: Delivery) -> None:
        """Fold what may have killed its consumers with nothing else in hand, and settle it at once.

        It counts as tried from within the turn on: neither a queue nor another's turn makes it lose its lease then.
        """
        if (self._hand or self._refused) and not await self.settle():
            return
        async with self.turns.mine():
            if await self._sources_by_stream[delivery.stream].begin(delivery):
                self._take_in([delivery])
                await self.settle()

    async def settle(self) -> bool:
        """Settle everything in hand. False: entries were taken over by another; what is still ours comes again."""
        try:
            sources = self._sources()
            await self._settle_target(sources.pop(self._slot, Settlement()))
            for settlement in sources.values():
                await self.outbox.settle(settlement)
        except StaleLeaseError as error:
            log.warning("lease.lost", stream=error.stream, entry_id=error.entry_id)
            for inbox in self.inboxes:
                await inbox.absolve()
            self._generation += 1  # what is read until here is handed over again, and not taken in twice
            for inbox in self.inboxes:
                inbox.rewind()
            await self._load()
            return False
        self._hand.clear()
        self._refused.clear()
        return True

    async def _settle_target(self, acks: Settlement) -> None:
        """Where only the record has moved, the same deliveries are folded again on top of what it holds by now."""
        while True:
            async with self.turns.mine():
                if self.turns.is_shared:
                    await self._keep_up()
                settlement = self._with_aggregates(acks)
                try:
                    await self.outbox.settle(settlement)
                    self.record.note(settlement.puts.get(self.target.record, {}))
                    return
                except StaleLeaseError as error:
                    if error.stream != self.target.record:
                        raise
            log.info("record.moved", record=self.target.record)
            self.turns.met()

    async def _keep_up(self) -> None:
        """Fold again what is in hand, if the record has moved."""
        fields = await self.record.read()
        if fields.get(VERSION.encode()) != self.tier.state.expected:
            self._fold_on(fields)

    def _with_aggregates(self, acks: Settlement) -> Settlement:
        expected = self.tier.state.expected
        aggregates = self.tier.take(self.clock())
        self.figures.note(aggregates)
        settlement = replace(acks, writes=[], puts={}, expectations=[])
        for aggregate in aggregates:
            settlement.write(self.target.stream, self.pipeline.seal(aggregate))
        if self._hand or aggregates:  # that all was met before holds only as long as the record says so too
            settlement.expect(self.target.record, VERSION, expected)
        if aggregates:
            settlement.put(self.target.record, self.tier.changed())
        return settlement

    def _sources(self) -> dict[str, Settlement]:
        """Acknowledgements and dead letters of all in hand, by the call that they go out with."""
        slots: dict[str, Settlement] = {}
        met = {hand[0].stream for hand in self._hand} | {refused[0].stream for refused in self._refused}
        streams = {stream: slots.setdefault(self._slot_of(stream), Settlement()) for stream in met}
        for delivery, _ in self._hand:
            streams[delivery.stream].ack(delivery)
        for delivery, error, is_told in self._refused:
            if error is None:
                reject_spent(streams[delivery.stream], delivery)
            elif is_told:
                streams[delivery.stream].reject(delivery, error)
            else:
                streams[delivery.stream].ack(delivery)
        return slots

    def _slot_of(self, stream: str) -> str:
        """That of the target where one server has all: between two calls it might fall back, and keep the second."""
        return beside(stream, "") if self.outbox.redis.by_slot else self._slot

    def _fold_on(self, fields: Mapping[bytes, bytes]) -> None:
        self.tier.load(fields)
        for _, opened in self._hand:
            self.pipeline.fold(opened, self.clock())

    async def _load(self) -> None:
        """Begin again from the record, with nothing in hand."""
        self._hand.clear()
        self._refused.clear()
        self._fold_on(await self.record.read())


def opening(opener: Opener, clock: ServerClock, *wanted: type[Message]) -> Callable[[Delivery], Opened]:
    """A reader of sealed messages of some types."""

    kinds = frozenset(map(kind_of, wanted))

    def read(delivery: Delivery) -> Opened:
        opened = opener.open(delivery.body, delivery.entry_id, clock.now_ms())
        if opened.header.kind not in kinds:
            kind = type_of(opened.header.kind).DESCRIPTOR.name
            expected = " or ".join(each.DESCRIPTOR.name for each in wanted)
            raise RefusedError(pb.ReasonCode.REASON_WRONG_TYPE, f"a {kind} on {delivery.stream}; expected a {expected}")
        return opened

    return read
