"""Shortens a run's logs below the oldest checkpoints of its ranks, once what goes lies in the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from esper.bus.connect import Redis
from esper.bus.delivery import body_of
from esper.bus.floors import NEWEST_KEPT, floors_of, workers_of
from esper.bus.names import JUDGE, key, row_of
from esper.bus.trim import cut
from esper.errors import SettingError
from esper.leyline.archive import Entry
from esper.leyline.entries import entry_order
from esper.runtime.archive import Archive, ArchiveError

PAGE = 512  # entries read, written and fsynced at a time

log = structlog.get_logger()


class Trimmer:
    """Archives first, then trims; what can't be archived stays. Of several processes one works, the others pass."""

    def __init__(self, redis: Redis, run_id: str, archive: Archive, newest_kept: int = NEWEST_KEPT) -> None:
        self._redis, self._run_id, self._archive, self._newest_kept = redis, run_id, archive, newest_kept
        self._told = ""

    async def shorten(self) -> int:
        """Trim what every rank's oldest checkpoint holds; how many entries went. A failure to archive is told once."""
        workers = await workers_of(self._redis, self._run_id)
        floors = await floors_of(self._redis, self._run_id, workers, self._newest_kept)
        if not floors:
            return 0
        try:
            with self._archive.held() as is_ours:
                return sum([await self._shorten(name, floors[name], workers) for name in floors]) if is_ours else 0
        except (ArchiveError, SettingError, OSError) as error:
            if str(error) != self._told:
                log.error("log.not_archived", why=str(error))
                self._told = str(error)
            return 0

    async def _shorten(self, name: str, floor: str, workers: Sequence[str]) -> int:
        await self._archived(name, floor)
        row = row_of(name)
        judges = [JUDGE] if JUDGE in row.group else []
        groups = [*judges, *workers] if row.positioned else []
        num = await cut(self._redis, key(self._run_id, name), floor, groups)
        if num:
            log.info("log.trimmed", stream=name, below=floor, num_entries=num)
        return num

    async def _archived(self, name: str, floor: str) -> None:
        """Have all that lies below the floor in the archive, in order."""
        after = await asyncio.to_thread(self._archive.through, name)
        while entry_order(after) < entry_order(floor):
            words = ("XRANGE", key(self._run_id, name), f"({after}", f"({floor}", "COUNT", PAGE)
            rows = await self._redis.ask(words)
            if not rows:
                return
            entries = [Entry(name, row[0].decode(), body_of(row[1])) for row in rows if row[1]]
            await asyncio.to_thread(self._archive.append, name, entries)
            after = rows[-1][0].decode()
