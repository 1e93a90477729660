"""The loop of every process that answers entries one by one: read, handle, publish, acknowledge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar

import structlog

from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import RepeatedError, Settlement
from esper.errors import StaleLeaseError
from esper.runtime.serving.delivery_handler import DeliveryHandler, Handle, Noted, Read, Repeats
from esper.runtime.serving.refusals import Refusals

T = TypeVar("T")

LAST_SETTLEMENT_S = 1.0

log = structlog.get_logger()


async def serve(
    inbox: Inbox,
    read: Read[T],
    handle: Handle[T],
    outbox: Outbox,
    *,
    until_idle: bool = False,
    refusals: Refusals | None = None,
) -> None:
    """Answer each batch of deliveries, then settle it in one round trip: acknowledged, or set aside for good.

    `read` is the one seam where trust is decided. The handler takes repeats: a refused settlement is answered again.
    In a group whose consumers take over from one another a sealed message takes effect once, also where its producer
    added it twice and two of them met one entry each: the record of that moves with the effect, in the same call. At
    the end what was read ahead is handed back to the group.
    """
    handler = DeliveryHandler(read, handle, Refusals() if refusals is None else refusals, once=inbox.shared)
    settler = Settler(inbox, handler, outbox)
    await inbox.open()
    try:
        ended = False
        while not ended:
            async for batch in inbox.batches(until_idle=until_idle):
                await settler.take(batch)
            ended = await settler.settled() or inbox.stopping
    finally:
        await settler.leave()
    await inbox.release()


class Settler(Generic[T]):
    """Settles batches in order. On a busy stream one is settled by the server while the next is answered here."""

    def __init__(self, inbox: Inbox, handler: DeliveryHandler[T], outbox: Outbox) -> None:
        self.inbox, self.handler, self.outbox = inbox, handler, outbox
        self._settling: asyncio.Task[bool] | None = None

    async def take(self, batch: Sequence[Delivery]) -> None:
        """Answer a batch and have it settled. One that was answered while another was refused comes again with it."""
        noted: Noted = {}
        settlement = self.handler.answered(batch, set(), noted)
        if not await self.settled():
            return
        self._settling = asyncio.create_task(self._settle(batch, settlement, noted))
        if not self.inbox.busy:
            await self.settled()

    async def settled(self) -> bool:
        """Wait for the settlement under way; whether it was accepted."""
        settling, self._settling = self._settling, None
        return settling is None or await settling

    async def leave(self) -> None:
        """Wait a moment for the settlement that an error overtook: it may go through, or its entries come again."""
        if self._settling is not None:
            await asyncio.wait([self._settling], timeout=LAST_SETTLEMENT_S)
            self._settling.cancel()

    async def _settle(self, batch: Sequence[Delivery], settlement: Settlement, noted: Noted) -> bool:
        """Whether it was accepted. Where it wasn't, or that is not known, what is still pending comes again."""
        repeats: Repeats = set()
        accepted = False
        try:
            while not accepted:
                try:
                    await self.outbox.settle(settlement)
                    accepted = True
                except RepeatedError as error:
                    log.info("messages.repeated", count=len(error.messages))
                    repeats |= error.messages
                    settlement = self.handler.answered(batch, repeats, noted)
        except StaleLeaseError as error:
            log.warning("lease.lost", stream=error.stream, entry_id=error.entry_id)
            await self.inbox.absolve()
        finally:
            if not accepted:
                self.inbox.rewind()
        return accepted
