"""Shortens a run's logs below the oldest checkpoints of its ranks, once what goes lies in the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import structlog

from esper.bus import tail
from esper.bus.connect import Redis
from esper.bus.group.delivery import body_of
from esper.bus.names import JUDGE, key, row_of
from esper.bus.upkeep.floors import DECISIONS, NOWHERE, floors_of, workers_of
from esper.bus.upkeep.trim import cut
from esper.errors import RefusedError, SettingError
from esper.leyline.archive import Entry
from esper.leyline.entries import entry_order
from esper.leyline.seal import Opened
from esper.leyline.succession import Said
from esper.runtime.history.archive import Archive, ArchiveError

PAGE = 512  # entries read, written and fsynced at a time
NEWEST_KEPT = 512
"""Decisions that stay in any case: a coordinator reads so many at its start."""
MOST_LOOKED_AT = 4096
"""Entries, behind which nothing is trimmed where less than that was said in them: the rest is junk, or copies."""

log = structlog.get_logger()


class Trimmer:
    """Archives first, then trims; what can't be archived stays. Of several processes one works, the others pass."""

    def __init__(
        self,
        redis: Redis,
        run_id: str,
        archive: Archive,
        read: Callable[[bytes, str], Opened],
        newest_kept: int = NEWEST_KEPT,
    ) -> None:
        """`read` opens a decision."""
        self._redis, self._run_id, self._archive, self._newest_kept = redis, run_id, archive, newest_kept
        self._read = read
        self._met: dict[str, bytes] = {}  # at the last look: digests of what was said, by entry; empty: nothing was
        self._told = ""

    async def shorten(self) -> int:
        """Trim what every rank's oldest checkpoint holds; how many entries went. A failure to archive is told once."""
        workers = await workers_of(self._redis, self._run_id)
        floors = await floors_of(self._redis, self._run_id, workers, await self._kept_from())
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

    async def _kept_from(self) -> str:
        """The oldest of the newest decisions. Junk, which anybody who can write to the server can add, is none.

        Nor is what lies ahead of the server's clock, where a copy may be of any age: what is before it stays for it.
        Each entry is opened once, however often this looks.
        """
        met, found = dict[str, bytes](), dict[bytes, str]()
        async with aclosing(tail.backwards(self._redis, key(self._run_id, DECISIONS))) as entries:
            async for entry_id, sealed in entries:
                known = self._met.get(entry_id)
                met[entry_id] = digest = self._said(entry_id, sealed) if known is None else known
                if digest:
                    found[digest] = entry_id
                if len(found) == self._newest_kept or len(met) == MOST_LOOKED_AT:
                    break
        self._met = met
        is_enough = len(found) == self._newest_kept or len(met) < MOST_LOOKED_AT
        return min(found.values(), key=entry_order, default=NOWHERE) if is_enough else NOWHERE

    def _said(self, entry_id: str, sealed: bytes) -> bytes:
        try:
            opened = self._read(sealed, entry_id)
        except RefusedError:
            return b""
        return opened.digest if isinstance(opened.message, Said) and not opened.clock_suspect else b""

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
            words = ("XRANGE", key(self._run_id, name), f"({after}", f"({floor}", "COUNT", str(PAGE))
            rows = await self._redis.ask(words)
            if not rows:
                return
            entries = [Entry(name, row[0].decode(), body_of(row[1])) for row in rows if row[1]]
            await asyncio.to_thread(self._archive.append, name, entries)
            after = rows[-1][0].decode()


def trimmer(archive: Path | None, redis: Redis, run_id: str, read: Callable[[bytes, str], Opened]) -> Trimmer | None:
    """None where there is no archive: then nothing is trimmed. `read` opens a decision."""
    return None if archive is None else Trimmer(redis, run_id, Archive(archive), read)
