"""What one batch comes to: entries done with or set aside, messages and records to write. All of it, or nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from esper.bus.group.delivery import FIELD, Delivery
from esper.bus.names import beside, dead_of
from esper.errors import EsperError, RefusedError, StaleLeaseError
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import reason_name

HEAD_BYTES = 64
NUM_SEEN = 8192
"""Messages of one series that share a key of 1 KiB: a bit says that its message took effect."""


class RepeatedError(EsperError):
    """Messages of a settlement took effect before, under the same entry or another one. Nothing was written."""

    def __init__(self, messages: set[tuple[str, int]]) -> None:
        self.messages = messages
        super().__init__(f"{len(messages)} messages took effect before, {min(messages)} among them")


@dataclass(frozen=True, slots=True)
class Write:
    """An entry to add to a stream."""

    stream: str
    fields: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a field of a hash must hold for the settlement to stand; None: it must not be there."""

    key: str
    field: str
    value: bytes | None


@dataclass(slots=True)
class Settlement:
    """Collects; knows nothing of Redis. Handed to Outbox.settle once, whole."""

    acks: dict[tuple[str, str, str], dict[str, None]] = field(default_factory=dict)
    drops: dict[str, dict[str, None]] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    dead: list[Write] = field(default_factory=list)
    puts: dict[str, dict[str, bytes]] = field(default_factory=dict)
    expectations: list[Expectation] = field(default_factory=list)
    effects: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    """By series and chunk of it: which messages take effect."""

    def ack(self, delivery: Delivery) -> None:
        """Done with: must still be pending for its consumer when this is settled. Repeats count once."""
        lease = (delivery.stream, delivery.group, delivery.consumer)
        ids = self.acks.get(lease)
        if ids is None:
            ids = self.acks[lease] = {}
        ids[delivery.entry_id] = None

    def ack_all(self, batch: Sequence[Delivery]) -> None:
        """The same of a whole batch, which is of one consumer: a tenth of the time."""
        if batch:
            first = batch[0]
            ids = self.acks.setdefault((first.stream, first.group, first.consumer), {})
            ids.update(dict.fromkeys([delivery[2] for delivery in batch]))

    def reject(self, delivery: Delivery, error: EsperError, dead: bytes | None = None) -> None:
        """Set aside for good: to :dead, and acknowledged. `dead` keeps the whole message, for one that is genuine."""
        self.dead.append(Write(dead_of(delivery.stream), obituary(delivery, error, dead)))
        self.ack(delivery)

    def drop(self, delivery: Delivery) -> None:
        """Done with, and deleted from its stream, whoever else has yet to read it: for what nobody may believe."""
        self.ack(delivery)
        ids = self.drops.get(delivery.stream)
        if ids is None:
            ids = self.drops[delivery.stream] = {}
        ids[delivery.entry_id] = None

    def write(self, stream_key: str, sealed: bytes) -> None:
        """Add a sealed message to a stream."""
        self.writes.append(Write(stream_key, {FIELD: sealed}))

    def once(self, series: str, number: int) -> None:
        """Refuse the whole, with RepeatedError, if this message took effect before.

        A series is a key in the slot of the rest, and numbers its messages close together. It is remembered for a day.
        """
        chunk = (series, number // NUM_SEEN)
        if chunk in self.effects:
            self.effects[chunk].add(number % NUM_SEEN)
        else:
            self.effects[chunk] = {number % NUM_SEEN}

    def holds(self, series: str, number: int) -> bool:
        """Whether this message takes effect with this settlement already."""
        return number % NUM_SEEN in self.effects.get((series, number // NUM_SEEN), ())

    def put(self, hash_key: str, fields: Mapping[str, bytes]) -> None:
        """Set fields of a hash; an empty value deletes one."""
        if fields:
            self.puts.setdefault(hash_key, {}).update(fields)

    def expect(self, hash_key: str, field: str, value: bytes | None) -> None:
        """Refuse the whole unless this field holds this value."""
        self.expectations.append(Expectation(hash_key, field, value))

    def give_up(self, error: StaleLeaseError) -> None:
        """Leave out the entry that is not ours any more; raise the error where it names none of these."""
        for lease, ids in self.acks.items():
            if lease[0] == error.stream and error.entry_id in ids:
                del ids[error.entry_id]
                if not ids:
                    del self.acks[lease]
                self._keep(error)
                return
        raise error

    def _keep(self, error: StaleLeaseError) -> None:
        """Whoever holds the entry now says what becomes of it."""
        dropped = self.drops.get(error.stream, {})
        dropped.pop(error.entry_id, None)
        if not dropped:
            self.drops.pop(error.stream, None)

    def by_slot(self) -> list[Settlement]:
        """In calls of one cluster slot each. Letters to another one go first: told twice at worst, and not lost."""
        home = beside(self.first_key, "")
        away = [write for write in self.dead if beside(write.stream, "") != home]
        if not away:
            return [self]
        return [Settlement(writes=away), replace(self, dead=[each for each in self.dead if each not in away])]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to settle."""
        return not (self.acks or self.writes or self.puts or self.expectations or self.effects)

    @property
    def first_key(self) -> str:
        """A key of this settlement, which is not empty: any says in which cluster slot they all are."""
        leases = (stream for stream, _, _ in self.acks)
        writes = (write.stream for write in self.writes)
        expected = (expectation.key for expectation in self.expectations)
        return next(chain(leases, writes, self.puts, expected, (series for series, _ in self.effects)))


def reject_spent(settlement: Settlement, delivery: Delivery) -> None:
    """Set aside an entry whose handler failed five times. Its bytes are kept: they may be genuine."""
    failed = delivery._replace(attempts=delivery.attempts - 1)
    error = RefusedError(pb.ReasonCode.REASON_POISON, f"delivered {failed.attempts} times without being settled")
    settlement.reject(failed, error, delivery.body)


def obituary(delivery: Delivery, error: EsperError, dead: bytes | None) -> dict[bytes, bytes]:
    """Fields of a dead letter. Junk is not copied: its hash and first 64 bytes tell enough."""
    reason = error.reason if isinstance(error, RefusedError) else pb.ReasonCode.REASON_POISON
    fields = {
        b"reason": reason_name(reason).encode(),
        b"detail": str(error).encode(),
        b"stream": delivery.stream.encode(),
        b"group": delivery.group.encode(),
        b"consumer": delivery.consumer.encode(),
        b"entry_id": delivery.entry_id.encode(),
        b"attempts": str(delivery.attempts).encode(),
        b"size": str(len(delivery.body)).encode(),
        b"sha256": hashlib.sha256(delivery.body).hexdigest().encode(),
        b"head": delivery.body[:HEAD_BYTES],
    }
    return fields if dead is None else {**fields, FIELD: dead}
