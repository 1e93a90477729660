"""Reads the global tier after what a sink holds already, and hands it over a batch at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import structlog

from esper.bus import tail
from esper.bus.backoff import Backoff
from esper.bus.connect import Redis
from esper.bus.faults import LostError
from esper.bus.group.delivery import Row
from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened

NOTHING = "0-0"

log = structlog.get_logger()


class Entry(NamedTuple):
    """One aggregate of the global tier, under its entry id."""

    entry_id: str
    aggregate: pb.AggregatedTelemetry


class Sink(Protocol):
    """Where aggregates go. It knows by itself how far it has come, also after it was killed in a write."""

    @property
    def position(self) -> str:
        """Entry id of the newest aggregate that it holds; NOTHING where it holds none."""

    @property
    def sequence(self) -> int:
        """That aggregate's number; 0 where it holds none."""

    async def write(self, entries: Sequence[Entry]) -> None:
        """Take in what comes next. Once it returns they are kept."""


@dataclass
class Export:
    """One stream into one sink, in order, each aggregate once; a plain read, which moves no group.

    What the stream no longer held when it was read is missing in the sink: counted, and told once a time.
    """

    redis: Redis
    stream: str
    open: Callable[[bytes, str], Opened]
    sink: Sink
    num_written: int = 0
    num_refused: int = 0
    num_missing: int = 0
    polled_at_s: float = 0.0
    _position: str = ""

    async def run(self, stopping: asyncio.Event, *, until_idle: bool = False) -> None:
        """Carry over until told to stop, or until nothing is left."""
        backoff = Backoff()
        self._position = self.sink.position
        while not stopping.is_set():
            try:
                rows = await tail.read_after(self.redis, self.stream, self._position, waits=not until_idle)
            except LostError as error:
                if not backoff.failures:
                    log.warning("export.interrupted", stream=self.stream, why=str(error))
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            self.polled_at_s = time.monotonic()
            if until_idle and not rows:
                return
            await self._carry(rows)

    async def _carry(self, rows: Sequence[Row]) -> None:
        entries = [entry for row in rows if (entry := self._opened(*tail.message(row))) is not None]
        if entries:
            self._note_missing(entries)
            await self.sink.write(entries)
            self.num_written += len(entries)
        if rows:
            self._position = tail.message(rows[-1])[0]

    def _opened(self, entry_id: str, sealed: bytes) -> Entry | None:
        try:
            message = self.open(sealed, entry_id).message
        except RefusedError as error:
            self.num_refused += 1
            if self.num_refused == 1:  # with keys of another run nothing opens, and once says it
                log.warning("export.refused", stream=self.stream, entry_id=entry_id, why=error.detail)
            return None
        return Entry(entry_id, message) if isinstance(message, pb.AggregatedTelemetry) else None

    def _note_missing(self, entries: Sequence[Entry]) -> None:
        """Aggregates are numbered without a gap; a lower number says that the tier began anew."""
        before = self.sink.sequence
        for entry in entries:
            number = entry.aggregate.sequence
            if before and number > before + 1:
                self.num_missing += number - before - 1
                log.warning("export.missing", stream=self.stream, first=before + 1, last=number - 1)
            before = number
