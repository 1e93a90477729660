"""One consumer's own pending entries: handed over again after a restart, and added to from consumers that died."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias

import structlog

from esper.bus.group.delivery import FIELD, MAX_ATTEMPTS, TOGETHER, Delivery, Row, body_of, delivered, entries_of
from esper.bus.group.script import ABSOLVE, call
from esper.bus.protocol import Ask, Steps
from esper.leyline.entries import before, entry_order

NUM_HELD_BEFORE_LOOK = 8192
NUM_ABSOLVED = 500  # entries a call
BEGIN, END = "0-0", "+"

Attempts: TypeAlias = dict[str, int]

log = structlog.get_logger()


class Source(NamedTuple):
    """Where entries come from, and in whose name."""

    stream: str
    group: str
    consumer: str


class Pending:
    """Walks the own pending list by a kept cursor. Remembers what is in hand, so that nothing is handed over twice."""

    def __init__(self, source: Source, count: int) -> None:
        self.source, self.count = source, count
        self.num_reclaimed = self._num_told = 0
        self.num_vanished = self.num_redelivered = 0
        self.apart = False
        """Whether what is handed over alone counts as tried only when it is begun."""
        self.sweeping = True
        self._cursor, self._last, self._claim_cursor = BEGIN, END, BEGIN
        self._held: set[str] = set()
        self._look_at = NUM_HELD_BEFORE_LOOK

    def restart(self) -> None:
        """Walk from the beginning."""
        self._cursor, self._last, self.sweeping = BEGIN, END, True

    def forget(self, entry_ids: Iterable[str]) -> None:
        """These are not in hand any more: to be handed over again, if they are pending still."""
        self._held.difference_update(entry_ids)

    def forget_all_but(self, entry_ids: Iterable[str]) -> None:
        """Only these are in hand."""
        self._held = set(entry_ids)

    def fresh(self, rows: Sequence[Row]) -> Steps[list[Delivery]]:
        """Deliveries of new entries, from now on in hand."""
        stream, group, consumer = self.source
        taken = [
            delivered((stream, group, at.decode(), row[1] if row[0] == FIELD else body_of(row), 1, consumer))
            for at, row in rows
        ]
        yield from self._hold([delivery[2] for delivery in taken])
        return taken

    def follow(self, rows: Sequence[Row]) -> Steps[bool]:
        """Whether new entries are the next ones; else another process of this name was handed some that lie before
        them, and these wait on the own pending list, behind those. Only where nobody reclaims, once that was walked."""
        if (yield from self._page(self._cursor, before(rows[0][0].decode()))):
            self._last, self.sweeping = END, True
            return False
        self._cursor = rows[-1][0].decode()
        return True

    def sweep(self) -> Steps[list[Delivery]]:
        """The next own pending entries that are not in hand; empty at the end of the list."""
        while rows := (yield from self._page(self._cursor, self._last)):
            if attempts := self._next_run(rows):
                entries = yield from self._rows_of(attempts)
                self._cursor = next(reversed(attempts))
                if deliveries := (yield from self._taken(entries, attempts)):
                    self.num_redelivered += len(deliveries)
                    return deliveries
            else:
                self._cursor = rows[-1][0]
        self.sweeping = False
        return []

    def begin(self, delivery: Delivery) -> Steps[bool]:
        """Count one that came alone as tried from now on; False: it is not ours any more, or it is gone."""
        stream, group, consumer = self.source
        words = ("XREADGROUP", "GROUP", group, consumer, "COUNT", "1", "STREAMS", stream, before(delivery.entry_id))
        rows = entries_of((yield Ask(words)))
        if rows and rows[0][0].decode() == delivery.entry_id:
            return bool((yield from self._taken(rows, {delivery.entry_id: delivery.attempts})))
        self.forget([delivery.entry_id])
        return False

    def absolve(self) -> Steps[None]:
        """What is in hand killed nobody: its last delivery in company does not count, whoever has it by now.

        Nothing is taken off a try alone: what always takes longer than its lease must come to an end too.
        """
        yield from self._take_off(sorted(self._held, key=entry_order), TOGETHER)

    def acquit(self, entry_ids: Sequence[str]) -> Steps[None]:
        """These were handled and killed nobody, though what they ask for is yet to come: that try does not count."""
        yield from self._take_off(entry_ids, MAX_ATTEMPTS)

    def _take_off(self, ids: Sequence[str], most: int) -> Steps[None]:
        stream, group, _ = self.source
        for start in range(0, len(ids), NUM_ABSOLVED):
            yield from call(ABSOLVE, [stream], [group, str(most), *ids[start : start + NUM_ABSOLVED]])

    def is_counted(self, delivery: Delivery) -> bool:
        """Whether the server's count of deliveries has this one from when it was handed over."""
        return not (self.apart and delivery.alone)

    def reclaim(self, min_idle_ms: int) -> Steps[bool]:
        """Take over entries idle for so long, a bounded number; whether there is more to look at."""
        stream, group, consumer = self.source
        words = (
            "XAUTOCLAIM",
            stream,
            group,
            consumer,
            str(min_idle_ms),
            self._claim_cursor,
            "COUNT",
            str(self.count),
            "JUSTID",
        )
        reply = yield Ask(words)
        self._claim_cursor = reply[0].decode()
        ids = [entry_id.decode() for entry_id in reply[1]]
        claimed = [entry_id for entry_id in ids if entry_id not in self._held]
        if claimed:
            self.num_reclaimed += len(claimed)
            self._add(claimed[0], claimed[-1])
        if self._claim_cursor != BEGIN:
            return True
        if self.num_reclaimed > self._num_told:  # once a pass, which may take thousands of calls
            log.info("entries.reclaimed", stream=stream, group=group, count=self.num_reclaimed - self._num_told)
            self._num_told = self.num_reclaimed
        return False

    def _add(self, first: str, last: str) -> None:
        """Walk this part of the list too; not the whole, of which a million entries may be in hand."""
        if not self.sweeping:
            self._cursor, self._last, self.sweeping = before(first), last, True
            return
        self._cursor = min(self._cursor, before(first), key=entry_order)
        self._last = END if self._last == END else max(self._last, last, key=entry_order)

    def _taken(self, rows: Sequence[Row], attempts: Attempts) -> Steps[list[Delivery]]:
        """Deliveries of these entries, from now on in hand. What was deleted while pending is acknowledged here."""
        stream, group, consumer = self.source
        deliveries, vanished = [], []
        for raw_id, fields in rows:
            entry_id = raw_id.decode()
            if not fields:
                vanished.append(entry_id)
            elif entry_id in attempts:  # else the list changed between two commands; the next page has it
                deliveries.append(Delivery(stream, group, entry_id, body_of(fields), attempts[entry_id], consumer))
        if vanished:
            yield from self._bury(vanished)
        yield from self._hold([delivery.entry_id for delivery in deliveries])
        return deliveries

    def _page(self, after: str, last: str = END) -> Steps[list[tuple[str, int]]]:
        """Own pending ids after one, with how often each was delivered."""
        stream, group, consumer = self.source
        start = "-" if after == BEGIN else f"({after}"
        rows: Any = yield Ask(("XPENDING", stream, group, start, last, str(self.count), consumer))
        return [(row[0].decode(), row[3]) for row in rows]

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

    def _rows_of(self, attempts: Attempts) -> Steps[list[Row]]:
        """The entries of a run, handed over again: all of which counts, but for one that is to be tried apart."""
        [entry_id, attempt] = next(iter(attempts.items()))
        if not (self.apart and attempt > TOGETHER):
            return (yield from self._again(len(attempts)))
        found: Any = yield Ask(("XRANGE", self.source.stream, entry_id, entry_id))
        return list(found) or [(entry_id.encode(), None)]

    def _again(self, count: int) -> Steps[list[Row]]:
        """Read own entries again from the cursor; this counts as a delivery."""
        stream, group, consumer = self.source
        words = ("XREADGROUP", "GROUP", group, consumer, "COUNT", str(count), "STREAMS", stream, self._cursor)
        return entries_of((yield Ask(words)))

    def _bury(self, vanished: Sequence[str]) -> Steps[None]:
        stream, group, _ = self.source
        if not self.num_vanished:  # the counter tells how many more; one line each would be a flood
            log.warning("entries.vanished", stream=stream, group=group, first=vanished[0])
        self.num_vanished += len(vanished)
        yield Ask(("XACK", stream, group, *vanished))

    def _hold(self, entry_ids: Sequence[str]) -> Steps[None]:
        """Note what goes in hand; before that, now and then, drop from memory what is no longer pending.

        In this order: a walk that fails leaves these entries to the next sweep.
        """
        if len(self._held) + len(entry_ids) > self._look_at:
            yield from self._look()
        self._held.update(entry_ids)

    def _look(self) -> Steps[None]:
        pending: set[str] = set()
        after = BEGIN
        while rows := (yield from self._page(after)):
            pending.update(entry_id for entry_id, _ in rows)
            after = rows[-1][0]
        self._held &= pending
        self._look_at = max(NUM_HELD_BEFORE_LOOK, 2 * len(self._held))
