"""Reads what a run says about itself: opens each message, skips what does not open, and never writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeAlias

import structlog

from esper.errors import EsperError, RefusedError
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import reason_name
from esper.leyline.seal import Opened
from esper.runtime.ending import meanwhile, raise_first
from esper.runtime.watching.liveness import Liveness, Workers

Follow: TypeAlias = Callable[[str, str], AsyncGenerator[tuple[str, bytes], None]]
Last: TypeAlias = Callable[[str, int], Awaitable[Sequence[tuple[str, bytes]]]]
Open: TypeAlias = Callable[[bytes, str], Opened]
Coming: TypeAlias = tuple[str, Opened]
"""A message, and the stream that it lies on."""
Refused: TypeAlias = Callable[[str, str, bytes, RefusedError], None]
"""Told of each entry that does not open: its stream, its id, its bytes and why."""

STAGES: Mapping[str, int] = {name.removeprefix("SEED_STAGE_"): number for name, number in pb.SeedLifecycleStage.items()}
_NEWEST_HEARTBEATS = 256  # two a second from each worker: two minutes of one
_NEWEST_OF_EACH = 8  # at least, where workers are many: four seconds

log = structlog.get_logger()


class NotSeenError(EsperError):
    """The run did not come to show what was waited for."""

    def __init__(self, waited_s: float, workers: Workers) -> None:
        self.waited_s, self.workers = waited_s, workers
        shown = "; ".join(f"{name} at step {beat.step}, epoch {beat.epoch}" for name, beat in sorted(workers.items()))
        slow = "; a run that goes on so slowly wants a larger timeout_s (of persist: epoch_timeout_s)" * bool(shown)
        super().__init__(f"not seen in {waited_s:g} s; newest heartbeats: {shown or 'none'}{slow}")


class Observer:
    """Opened messages of any stream, and the newest heartbeat of each worker."""

    def __init__(self, follow: Follow, last: Last, open_: Open, refused: Refused | None = None) -> None:
        self._follow, self._last, self._open, self._refused = follow, last, open_, refused
        self._told: set[tuple[str, str]] = set()

    async def position(self, stream: str) -> str:
        """The newest entry id; following from here misses nothing that is written after this call."""
        entries = await self._last(stream, 1)
        return entries[-1][0] if entries else "0"

    async def newest(self, stream: str, count: int) -> list[Opened]:
        """The last `count` entries that open, oldest first."""
        entries = await self._last(stream, count)
        return [opened for entry_id, sealed in entries if (opened := self.opened(stream, entry_id, sealed))]

    async def messages(self, stream: str, since: str = "$") -> AsyncGenerator[Opened, None]:
        """Every entry after `since` that opens, without end."""
        async with aclosing(self._follow(stream, since)) as entries:
            async for entry_id, sealed in entries:
                if opened := self.opened(stream, entry_id, sealed):
                    yield opened

    async def merged(self, positions: Mapping[str, str]) -> AsyncGenerator[Coming, None]:
        """Entries of several streams as they come, each behind a position of its own; in order within each only."""
        queue: asyncio.Queue[Coming] = asyncio.Queue(maxsize=1_024)
        async with meanwhile(*(self._pour(stream, since, queue) for stream, since in positions.items())) as readers:
            while True:
                yield await _next(queue, readers)

    async def heard(self, heartbeats: str) -> Liveness:
        """The newest heartbeat of each worker heard of lately."""
        heard = await self._heard_in(heartbeats, _NEWEST_HEARTBEATS)
        if (wanted := _NEWEST_OF_EACH * len(heard.beats)) > _NEWEST_HEARTBEATS:
            heard = await self._heard_in(heartbeats, wanted)
        return heard

    async def _heard_in(self, heartbeats: str, count: int) -> Liveness:
        heard = Liveness()
        for opened in await self.newest(heartbeats, count):
            heard.note(opened)
        return heard

    async def changes(self, heartbeats: str) -> AsyncGenerator[Workers, None]:
        """The newest heartbeat of each worker that takes part: now, and after each that comes."""
        since = await self.position(heartbeats)
        heard = await self.heard(heartbeats)
        yield heard.present
        async with aclosing(self.messages(heartbeats, since)) as beats:
            async for opened in beats:
                heard.note(opened)
                yield heard.present

    async def _pour(self, stream: str, since: str, queue: asyncio.Queue[Coming]) -> None:
        async with aclosing(self.messages(stream, since)) as messages:
            async for opened in messages:
                await queue.put((stream, opened))

    def opened(self, stream: str, entry_id: str, sealed: bytes) -> Opened | None:
        """One entry; None, and told once a reason, where it does not open."""
        try:
            return self._open(sealed, entry_id)
        except RefusedError as error:
            if self._refused is not None:
                self._refused(stream, entry_id, sealed, error)
            reason = reason_name(error.reason)
            if (stream, reason) not in self._told:  # with keys of another run nothing opens, and once says it
                self._told.add((stream, reason))
                log.warning("message.refused", stream=stream, entry_id=entry_id, reason=reason, detail=error.detail)
            return None


async def _next(queue: asyncio.Queue[Coming], readers: Sequence[asyncio.Task[None]]) -> Coming:
    if not queue.empty():
        return queue.get_nowait()
    async with meanwhile(queue.get()) as [item]:
        await asyncio.wait([item, *readers], return_when=asyncio.FIRST_COMPLETED)
        raise_first(readers)  # one never ends by itself
        found: Coming = await item
        return found
