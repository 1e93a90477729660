"""What Redis holds of a run: streams that number their entries as it does, by a clock that may be set."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from esper.leyline.archive import STREAMS, Entry
from esper.runtime.history.logbook import Logbook, key_ids
from tests.town.log import COUNT_BITS, Log, entry_id, number, ranged

MS_NS = 1_000_000


class Streams:
    """Everything sealed. Time goes on only where it is told to."""

    def __init__(self) -> None:
        self.passed_ns = 0
        self.set_ns = time.time_ns()  # what the clock of everybody is ahead of that
        self.was_ms = list[int]()  # what it showed each time that it was set
        self.logs: dict[str, Log[bytes]] = {name: Log() for name in STREAMS}
        self.began: dict[str, str] = {}  # the newest decision when each trainer began
        self.archived: dict[str, dict[int, bytes]] = {name: {} for name in STREAMS}
        self.num_lost = 0  # how often history was lost

    def now_ns(self) -> int:
        return self.passed_ns + self.set_ns

    def now_ms(self) -> int:
        return self.now_ns() // MS_NS

    def set_by(self, ns: int) -> None:
        self.was_ms.append(self.now_ms())
        self.set_ns += ns

    def pass_ms(self, ms: int) -> None:
        self.passed_ns += ms * MS_NS

    def add(self, stream: str, sealed: bytes) -> str:
        return entry_id(self.logs[stream].add(sealed, self.now_ms() << COUNT_BITS))

    def newest(self, stream: str) -> str:
        return entry_id(max(self.logs[stream].entries, default=0))

    async def ask(self, words: Sequence[Any]) -> list[Any]:
        return ranged(self.logs[str(words[1]).rpartition(":")[2]], words)

    def trim(self, stream: str, below: str) -> None:
        """As the controller does: archived first."""
        entries = self.logs[stream].entries
        for at in [at for at in entries if at < number(below)]:
            self.archived[stream][at] = entries.pop(at)

    def lose(self) -> None:
        """All of it, as by FLUSHALL."""
        self.num_lost += 1
        for log in self.logs.values():
            log.lose()
        self.began.clear()

    def keep(self) -> None:
        """What a server falls back to that dies later."""
        self._kept = {name: log.kept() for name, log in self.logs.items()}, dict(self.began)

    def fall_back(self) -> None:
        self.num_lost += 1
        logs, began = self._kept
        self.logs, self.began = {name: log.kept() for name, log in logs.items()}, dict(began)

    def book(self, run_id: str) -> Logbook:
        """The log of the run, archive and all."""
        book = Logbook(run_id)
        for name in STREAMS:
            whole = self.archived[name] | self.logs[name].entries
            book.streams[name] += [Entry(name, entry_id(at), sealed) for at, sealed in whole.items()]
        book.sort()
        book.keys = key_ids(book.entries)
        return book

    def left(self, stream: str, group: str) -> Iterator[int]:
        return self.logs[stream].left(group)
