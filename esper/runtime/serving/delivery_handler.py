"""How deliveries are answered one by one: what is written for each, what is set aside, what took effect before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

import structlog

from esper.bus.group.delivery import MAX_ATTEMPTS, Delivery
from esper.bus.group.settlement import Settlement, reject_spent
from esper.bus.names import beside
from esper.errors import EsperError, RefusedError, UnsealedError
from esper.leyline.envelope import Header
from esper.leyline.routes import MOST_ROUTES, Route
from esper.leyline.seal import Opened
from esper.runtime.serving.refusals import Refusals

T = TypeVar("T")

Read: TypeAlias = Callable[[Delivery], T]
Handle: TypeAlias = Callable[[T], Iterable[tuple[str, bytes]]]  # to which stream, what sealed bytes
Message: TypeAlias = tuple[str, int]  # the key of a series, and the number in it
Repeats: TypeAlias = set[Message]
Noted: TypeAlias = dict[str, bool]
"""Entries of a batch that were refused, and whether each gets a letter: counted once, however often it is answered."""

log = structlog.get_logger()


class DeliveryHandler(Generic[T]):
    """Answers deliveries. Knows nothing of where they come from, or of when they are settled.

    `once`: a sealed message takes effect once for the whole group, however many entries hold it.
    """

    def __init__(self, read: Read[T], handle: Handle[T], refusals: Refusals, *, once: bool) -> None:
        self.read, self.handle, self.refusals, self.once = read, handle, refusals, once
        self.num_repeats = 0
        self._series: dict[tuple[Route | None, str, str], str] = {}  # by the route of a message, where it was met

    def answered(self, batch: Sequence[Delivery], repeats: Repeats, noted: Noted | None = None) -> Settlement:
        """What a batch comes to; these messages of it took effect before. Asked for anew with the same `noted`.

        Whatever becomes of an entry, it is done with, and acknowledged.
        """
        settlement, noted = Settlement(), {} if noted is None else noted
        settlement.ack_all(batch)
        for delivery in batch:
            if delivery.attempts > MAX_ATTEMPTS:
                reject_spent(settlement, delivery)
            else:
                self._answer(delivery, settlement, repeats, noted)
        return settlement

    def _answer(self, delivery: Delivery, settlement: Settlement, repeats: Repeats, noted: Noted) -> None:
        """Answer one delivery; where it is refused, alone: its neighbours go on."""
        try:
            opened = self.read(delivery)
            message = self._message_of(opened, delivery) if self.once else None
            is_repeat = message is not None and (message in repeats or settlement.holds(*message))
            answers = () if is_repeat else list(self.handle(opened))
        except EsperError as error:
            self._refuse(delivery, error, settlement, noted)
            return
        if is_repeat:
            self.num_repeats += 1
        elif message is not None:  # only now: what failed took no effect, and may come again
            settlement.once(*message)
        for stream, sealed in answers:
            settlement.write(stream, sealed)

    def _refuse(self, delivery: Delivery, error: EsperError, settlement: Settlement, noted: Noted) -> None:
        is_told = noted.get(delivery.entry_id)
        if is_told is None:
            is_told = noted[delivery.entry_id] = self.refusals.note(delivery.stream, delivery.entry_id, error)
        if is_told:
            settlement.reject(delivery, error, None if isinstance(error, RefusedError) else delivery.body)
        if isinstance(error, UnsealedError):  # else a stream that is kept whole would grow with every flood
            settlement.drop(delivery)

    def _message_of(self, opened: T, delivery: Delivery) -> Message | None:
        """Who it is, whatever entry holds it. None: that does not matter here."""
        if not isinstance(opened, Opened):
            return None
        return self._series_of(opened, delivery), opened.header.sequence

    def _series_of(self, opened: Opened, delivery: Delivery) -> str:
        name = (opened.route, delivery.stream, delivery.group)
        series = self._series.get(name)
        if series is None or opened.route is None:
            if len(self._series) >= MOST_ROUTES:
                self._series.clear()
            series = self._series[name] = series_key(opened.header, delivery)
        return series


def series_key(header: Header, delivery: Delivery) -> str:
    """Where it is kept which messages of one producer, in one incarnation, for one target took effect in a group."""
    # Names may hold any character: their lengths keep (a, b/c) and (a/b, c) apart.
    who = f"{header.role.value}/{header.incarnation:016x}/{len(header.producer)}/{header.producer}/{header.target}"
    return beside(delivery.stream, f"seen:{delivery.group}:{who}")
