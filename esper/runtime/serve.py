"""The loop of every process that answers entries one by one: read, handle, publish, acknowledge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

import structlog

from esper.bus.delivery import Delivery
from esper.bus.inbox import Inbox
from esper.bus.outbox import Outbox
from esper.bus.settlement import Settlement, reject_spent
from esper.errors import EsperError, RefusedError, StaleLeaseError

T = TypeVar("T")

Read: TypeAlias = Callable[[Delivery], T]
Handle: TypeAlias = Callable[[T], Iterable[tuple[str, bytes]]]  # to which stream, what sealed bytes

log = structlog.get_logger()


async def serve(inbox: Inbox, read: Read[T], handle: Handle[T], outbox: Outbox, *, until_idle: bool = False) -> None:
    """Answer each batch of deliveries, then settle it in one round trip: acknowledged, or set aside for good.

    `read` is the one seam where trust is decided. The handler takes repeats: a refused settlement is answered again.
    """
    await inbox.open()
    async for batch in inbox.batches(until_idle=until_idle):
        settlement = Settlement()
        for delivery in batch:
            answer(delivery, read, handle, settlement)
        try:
            await outbox.settle(settlement)
        except StaleLeaseError as error:
            log.warning("lease.lost", stream=error.stream, entry_id=error.entry_id)
            inbox.rewind()


def answer(delivery: Delivery, read: Read[T], handle: Handle[T], settlement: Settlement) -> None:
    """Settle one delivery; where it is refused, alone: its neighbours go on."""
    if delivery.spent:
        reject_spent(settlement, delivery)
        return
    try:
        answers = list(handle(read(delivery)))
    except EsperError as error:
        log.warning("message.refused", stream=delivery.stream, entry_id=delivery.entry_id, why=str(error))
        settlement.reject(delivery, error, None if isinstance(error, RefusedError) else delivery.body)
        return
    for stream, sealed in answers:
        settlement.write(stream, sealed)
    settlement.ack(delivery)
