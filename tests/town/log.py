"""A stream, and what each group has read and has pending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class Log(Generic[T]):
    """Numbers go on through a loss of history, as times do."""

    entries: dict[int, T] = field(default_factory=dict)
    read: Counter[str] = field(default_factory=Counter)
    pending: dict[str, set[int]] = field(default_factory=dict)

    def take(self, group: str) -> int | None:
        """The next entry that nobody of the group was handed yet; None: there is none."""
        at = next((at for at in self.entries if at > self.read[group]), None)
        if at is not None:
            self.read[group] = at
            self.pending.setdefault(group, set()).add(at)
        return at

    def left(self, group: str) -> Iterator[int]:
        """What is pending and still there, in order."""
        return (at for at in sorted(self.pending.get(group, ())) if at in self.entries)

    def ack(self, group: str, at: int) -> None:
        self.pending.get(group, set()).discard(at)

    def begin_anew(self, group: str) -> None:
        """The group is destroyed, and made again at the beginning."""
        self.read[group] = 0
        self.pending[group] = set()

    def lose(self) -> None:
        """All that was stored is gone."""
        self.entries.clear()
        self.read.clear()
        self.pending = {group: set() for group in self.pending}
