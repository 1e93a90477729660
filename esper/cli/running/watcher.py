"""Reads along with a run, holding no keys but an observer's and joining no group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from esper.bus import connect, names, tail
from esper.bus.runs import RunRecord
from esper.cli.running.summary import Collected
from esper.client import observing
from esper.leyline.keys.keyring import RoleKeyring
from esper.runtime.ending import along, end
from esper.runtime.watching.observer import Observer
from esper.view.picture import Picture

T = TypeVar("T")

POLL_S = 0.2
STREAMS = ("receipts", "decisions", "heartbeats")


class Watcher:
    """Collects what a run says; `changed` is set at each message. What it reads is never acknowledged."""

    def __init__(self, run_id: str) -> None:
        self.collected, self.picture = Collected(run_id), Picture(run_id)
        self.changed = asyncio.Event()
        self._reading: list[asyncio.Task[None]] = []

    def start(self, *parts: Coroutine[object, object, None]) -> None:
        """Read these, each on its own."""
        self._reading = [asyncio.create_task(part) for part in parts]

    async def end(self) -> None:
        await end(self._reading)

    async def along(self, work: Coroutine[object, object, T]) -> T:
        """Do this work; what goes wrong with the reading ends it, as when Redis is gone."""
        return await along(work, self._reading)

    async def until(self, predicate: Callable[[Collected], bool]) -> None:
        """Wait until what was collected satisfies this."""
        while not predicate(self.collected):
            self.changed.clear()
            await self.changed.wait()

    async def follow(self, observer: Observer) -> None:
        """Receipts, decisions and heartbeats from the beginning of the run on, without end."""
        positions = {names.key(self.collected.run_id, name): "0" for name in STREAMS}
        async with aclosing(observer.merged(positions)) as messages:
            async for _, opened in messages:
                self.collected.note(opened.message)
                self.picture.note(opened)
                self.changed.set()

    async def count(self, redis: connect.Redis, stream: str) -> None:
        """Entries of a command stream, whoever wrote them."""
        async with aclosing(tail.follow(redis, names.key(self.collected.run_id, stream), "0")) as entries:
            async for _ in entries:
                self.collected.num_published += 1
                self.changed.set()

    async def look_at_totals(self, redis: connect.Redis) -> None:
        """What the global tier has folded, five times a second."""
        while True:
            await self.read_totals(redis)
            await asyncio.sleep(POLL_S)

    async def read_totals(self, redis: connect.Redis) -> None:
        fields: Any = await redis.hgetall(names.key(self.collected.run_id, "totals"))
        self.picture.flow.note_totals(fields, time.monotonic_ns() // 1_000_000)
        self.collected.totals = self.picture.flow.totals
        self.changed.set()


@asynccontextmanager
async def watcher(record: RunRecord) -> AsyncIterator[Watcher]:
    """A watcher of a live run, for as long as the context lasts."""
    seen = Watcher(record.run_id)
    keys = RoleKeyring.load(record.keyring("observer"))
    async with connect.reader(record.reach) as reader, connect.writer(record.reach) as writer:
        observer = await observing(keys, "witness", reader, writer)
        seen.start(
            seen.follow(observer),
            seen.look_at_totals(writer),
            *map(partial(seen.count, reader), ("commands", "optimizer")),
        )
        try:
            yield seen
        finally:
            await seen.end()
