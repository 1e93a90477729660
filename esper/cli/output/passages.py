"""A part of what streams hold, and what comes behind it: oldest first, whichever stream it lies on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Protocol

from esper.bus import tail
from esper.bus.client.deadline import by, ends_in
from esper.bus.connect import Redis
from esper.bus.faults import LostError
from esper.cli.output.moments import NOW, START, after, up_to
from esper.errors import EsperError
from esper.leyline.entries import entry_ms, entry_order
from esper.leyline.seal import Opened

ON_ITS_WAY_S = 1.0


class UnshownError(EsperError):
    """The end has come, and Redis is gone with what may have come before it. Up to `entry_id` all is shown."""

    def __init__(self, entry_id: str, why: LostError) -> None:
        self.entry_id, self.why = entry_id, why
        super().__init__(f"what came after {entry_id} may not all be shown; --since {entry_id} shows it later: {why}")


class Observer(Protocol):
    """Opens entries, and follows streams."""

    def opened(self, stream: str, entry_id: str, sealed: bytes) -> Opened | None: ...
    def merged(self, positions: Mapping[str, str]) -> AsyncGenerator[tuple[str, Opened], None]: ...


@dataclass(frozen=True, slots=True)
class Passage:
    """Entries behind `since` up to `until`, or the `last` so many of them; `follows`: also those that come."""

    since: str
    until: str
    last: int | None
    follows: bool

    @classmethod
    def of(cls, since: str, until: str, last: int | None, follows: bool, now_s: float) -> Passage:
        """From what a person wrote. Empty: from now on, where it is followed, and else all there is; without end."""
        start = since or (NOW if follows and last is None else START)
        end = up_to("until", until, now_s) if until else ""
        is_past = bool(end) and entry_ms(end) < now_s * 1000
        return cls(after("since", start, now_s), end, last, follows and not is_past)

    def is_over(self, entry_id: str) -> bool:
        """Whether this lies behind the end."""
        return bool(self.until) and entry_order(entry_id) > entry_order(self.until)

    def patience_s(self, now_s: float) -> float | None:
        """How long what comes is followed from now on: to the end, and a second for what is on its way."""
        return max(0.0, entry_ms(self.until) / 1000 - now_s) + ON_ITS_WAY_S if self.until else None


@dataclass(frozen=True, slots=True)
class Reading:
    """Streams that are read as one, and what is wanted of each message."""

    redis: Redis
    observer: Observer
    streams: Sequence[str]
    left: Callable[[Opened], Opened | None]

    async def messages(self, passage: Passage) -> AsyncGenerator[Opened, None]:
        """What the passage says. Ends where it does; where it follows without an end, never.

        Where each stream stands is its own: on a Cluster each server gives out ids by its own clock.
        """
        newest = {stream: await tail.newest_id(self.redis, stream) for stream in self.streams}
        coming = {stream: end for stream, end in newest.items() if not passage.is_over(end)}
        if passage.since != NOW:
            ends = {stream: coming.get(stream, passage.until) for stream in self.streams}
            begin = dict.fromkeys(ends, passage.since)
            found = self._newest(passage, ends) if passage.last else self._forward(begin, ends)
            async with aclosing(found) as before:
                async for opened in before:
                    yield opened
        if passage.follows and coming:
            async with aclosing(self._coming(passage, coming)) as messages:
                async for opened in messages:
                    yield opened

    async def _coming(self, passage: Passage, positions: Mapping[str, str]) -> AsyncGenerator[Opened, None]:
        """Until each stream has come behind the end, or its moment has passed; then what each still holds up to it.

        One may have nothing behind the end, another no pause. How long it takes to print what has come, or to hear of
        it, is nothing to what follows.
        """
        ends, reached, loop = ends_in(passage.patience_s(time.time())), dict(positions), asyncio.get_running_loop()
        async with aclosing(self.observer.merged(positions)) as messages:
            while reached and loop.time() < ends and (found := await _next(messages, ends)) is not None:
                stream, opened = found
                if passage.is_over(opened.entry_id):
                    reached.pop(stream, None)
                    continue
                reached[stream] = opened.entry_id
                if (wanted := self.left(opened)) is not None:
                    yield wanted
        try:
            async with aclosing(self._forward(reached, dict.fromkeys(reached, passage.until))) as rest:
                async for opened in rest:
                    yield opened
        except LostError as error:
            raise UnshownError(min(reached.values(), key=entry_order), error) from error

    async def _newest(self, passage: Passage, ends: Mapping[str, str]) -> AsyncGenerator[Opened, None]:
        found: list[Opened] = []
        for stream, end in ends.items():
            num = 0
            async with aclosing(tail.backwards(self.redis, stream, end)) as entries:
                async for entry_id, sealed in entries:
                    if num == passage.last or entry_order(entry_id) <= entry_order(passage.since):
                        break
                    if (opened := self._wanted(stream, entry_id, sealed)) is not None:
                        found.append(opened)
                        num += 1
        for opened in sorted(found, key=lambda opened: entry_order(opened.entry_id))[-(passage.last or 0) :]:
            yield opened

    async def _forward(self, since: Mapping[str, str], ends: Mapping[str, str]) -> AsyncGenerator[Opened, None]:
        """The first of all streams, again and again."""
        parts = [self._part(stream, since[stream], end) for stream, end in ends.items()]
        heads = [(await anext(part, None), part) for part in parts]
        waiting = [(head, part) for head, part in heads if head is not None]
        while waiting:
            waiting.sort(key=lambda pair: entry_order(pair[0].entry_id))
            first, part = waiting.pop(0)
            yield first
            if (following := await anext(part, None)) is not None:
                waiting.append((following, part))

    async def _part(self, stream: str, since: str, end: str) -> AsyncGenerator[Opened, None]:
        while rows := await tail.read_after(self.redis, stream, since, waits=False):
            for entry_id, sealed in map(tail.message, rows):
                if entry_order(entry_id) > entry_order(end):
                    return
                since = entry_id
                if (opened := self._wanted(stream, entry_id, sealed)) is not None:
                    yield opened

    def _wanted(self, stream: str, entry_id: str, sealed: bytes) -> Opened | None:
        opened = self.observer.opened(stream, entry_id, sealed)
        return None if opened is None else self.left(opened)


async def _next(messages: AsyncGenerator[tuple[str, Opened], None], end: float) -> tuple[str, Opened] | None:
    """None: nothing came until then, by the clock of the loop."""
    with suppress(TimeoutError):
        return await by(end, anext(messages))
    return None
