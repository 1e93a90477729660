"""One stream of the model: its entries, and what each group knows of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

Id = tuple[int, int]
Fields = tuple[bytes, ...]
BEGIN: Id = (0, 0)
END: Id = (2**64 - 1, 2**64 - 1)


@dataclass(slots=True)
class Lease:
    """One entry pending for a consumer."""

    consumer: bytes
    delivered_ms: int
    count: int


@dataclass(slots=True)
class Group:
    """What a group was given, and what it has not acknowledged."""

    last: Id
    leases: dict[Id, Lease] = field(default_factory=dict)
    order: list[Id] = field(default_factory=list)  # of the leases, ascending
    consumers: dict[bytes, int] = field(default_factory=dict)  # when each was seen, in ms

    def lend(self, at: Id, consumer: bytes, now_ms: int) -> None:
        """Make an entry pending for a consumer, for the first time."""
        if at not in self.leases:
            insort(self.order, at)
        self.leases[at] = Lease(consumer, now_ms, 1)

    def drop(self, at: Id) -> bool:
        """An entry is pending no more; whether it was."""
        if self.leases.pop(at, None) is None:
            return False
        del self.order[bisect_left(self.order, at)]
        return True

    def held(self, first: Id, last: Id, consumer: bytes | None = None) -> Iterator[tuple[Id, Lease]]:
        """What is pending between two ids, both included, in order."""
        for at in self.order[bisect_left(self.order, first) : bisect_right(self.order, last)]:
            lease = self.leases[at]
            if consumer is None or lease.consumer == consumer:
                yield at, lease

    def copy(self) -> Group:
        leases = {at: replace(lease) for at, lease in self.leases.items()}
        return Group(self.last, leases, self.order.copy(), self.consumers.copy())

    def num_pending(self, consumer: bytes) -> int:
        return sum(lease.consumer == consumer for lease in self.leases.values())


@dataclass(slots=True)
class Stream:
    """Entries in order. Ids never go back, whatever the clock does."""

    entries: dict[Id, Fields] = field(default_factory=dict)
    order: list[Id] = field(default_factory=list)
    last: Id = BEGIN
    groups: dict[bytes, Group] = field(default_factory=dict)

    def copy(self) -> Stream:
        groups = {name: group.copy() for name, group in self.groups.items()}
        return Stream(self.entries.copy(), self.order.copy(), self.last, groups)

    def next_id(self, now_ms: int) -> Id:
        return (now_ms, 0) if now_ms > self.last[0] else (self.last[0], self.last[1] + 1)

    def add(self, at: Id, fields: Fields) -> None:
        self.entries[at] = fields
        self.order.append(at)
        self.last = at

    def between(self, first: Id, last: Id) -> list[Id]:
        """Ids that exist, both ends included."""
        return self.order[bisect_left(self.order, first) : bisect_right(self.order, last)]

    def after(self, at: Id, count: int | None = None) -> list[Id]:
        begin = bisect_right(self.order, at)
        return self.order[begin : None if count is None else begin + count]

    def delete(self, ids: Iterable[Id]) -> int:
        gone = [at for at in ids if self.entries.pop(at, None) is not None]
        if gone:
            self.order = [at for at in self.order if at in self.entries]
        return len(gone)


def pack(at: Id) -> bytes:
    return b"%d-%d" % at


def parse(text: bytes, missing: int = 0) -> Id:
    """An id; `missing` is the sequence of one that has none."""
    milliseconds, _, sequence = text.partition(b"-")
    return int(milliseconds), int(sequence) if sequence else missing


def first_of(text: bytes) -> Id:
    """The lower end of a range: `-`, an id, or one that is not included."""
    if text == b"-":
        return BEGIN
    if text.startswith(b"("):
        at = parse(text[1:])
        return (at[0], at[1] + 1) if at[1] < END[1] else (at[0] + 1, 0)
    return parse(text)


def last_of(text: bytes) -> Id:
    """The upper end of a range."""
    if text == b"+":
        return END
    if text.startswith(b"("):
        at = parse(text[1:], END[1])
        return (at[0], at[1] - 1) if at[1] else (at[0] - 1, END[1])
    return parse(text, END[1])
