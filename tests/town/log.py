"""A stream, and what each group has read and has pending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from esper.bus.group.delivery import FIELD
from esper.leyline.entries import entry_order

T = TypeVar("T")
COUNT_BITS = 20


def entry_id(at: int) -> str:
    return f"{at >> COUNT_BITS}-{at & ((1 << COUNT_BITS) - 1)}"


def number(given: str) -> int:
    ms, count = entry_order(given)
    return (ms << COUNT_BITS) + count


@dataclass
class Log(Generic[T]):
    """Numbers go by the server's clock, and never back while the stream is there."""

    entries: dict[int, T] = field(default_factory=dict)
    last: int = 0
    read: Counter[str] = field(default_factory=Counter)
    pending: dict[str, dict[int, int]] = field(default_factory=dict)
    """Of each group how often each was handed over."""

    def add(self, what: T, clock: int, step: int = 1) -> int:
        """Its number; `step`: to the next one where the clock was set back behind the last."""
        self.last = clock if clock > self.last else self.last + step
        self.entries[self.last] = what
        return self.last

    def take(self, group: str) -> int | None:
        """The next entry that nobody of the group was handed yet; None: there is none."""
        at = next((at for at in self.entries if at > self.read[group]), None)
        if at is not None:
            self.read[group] = at
            self.pending.setdefault(group, {})[at] = 1
        return at

    def again(self, group: str, at: int) -> int | None:
        """One that is pending still; how often it was handed over by now."""
        pending = self.pending.get(group, {})
        if at not in pending or at not in self.entries:
            return None
        pending[at] += 1
        return pending[at]

    def left(self, group: str) -> Iterator[int]:
        """What is pending and still there, in order."""
        return (at for at in sorted(self.pending.get(group, ())) if at in self.entries)

    def ack(self, group: str, at: int) -> None:
        self.pending.get(group, {}).pop(at, None)

    def begin_anew(self, group: str) -> None:
        """The group is destroyed, and made again at the beginning."""
        self.read[group] = 0
        self.pending[group] = {}

    def lose(self) -> None:
        """The stream is gone, and every group with it."""
        self.entries.clear()
        self.read.clear()
        self.last, self.pending = 0, {}

    def kept(self) -> Self:
        """As it is now, for a server that falls back to it."""
        return type(self)(dict(self.entries), self.last, Counter(self.read), deepcopy(self.pending))


@dataclass
class Record:
    """What a process that starts reads of the decisions, beside its group."""

    decisions: Log[bytes]

    async def ask(self, words: Sequence[Any]) -> list[Any]:
        return ranged(self.decisions, words)


def ranged(log: Log[bytes], words: Sequence[Any]) -> list[Any]:
    """What a log answers to XRANGE and XREVRANGE, with COUNT or without."""
    verb, _, first, last = words[:4]
    low, high = (first, last) if verb == "XRANGE" else (last, first)
    least = 0 if low == "-" else number(low.lstrip("(")) + low.startswith("(")
    most = log.last if high == "+" else number(high.lstrip("(")) - high.startswith("(")
    rows = [(at, said) for at, said in log.entries.items() if least <= at <= most]
    rows = rows if verb == "XRANGE" else rows[::-1]
    return [(entry_id(at).encode(), [FIELD, said]) for at, said in rows[: int(words[5]) if len(words) > 5 else None]]
