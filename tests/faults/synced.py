"""A redis-server whose every fsync is noted, so that what a power loss takes can be taken: all that was not synced."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from tests.faults.server import Server

SOURCE = Path(__file__).with_name("fsync_log.c")


class SyncedServer(Server):
    """Loses power when told to. The library that notes the fsyncs is built with the machine's C compiler."""

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "LD_PRELOAD": str(self._library), "FSYNC_LOG": str(self._synced)}

    @cached_property
    def _library(self) -> Path:
        library = self.directory / "fsync_log.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        return library

    @property
    def _synced(self) -> Path:
        return self.directory / "synced"

    @property
    def log_file(self) -> Path:
        """The append-only file that is written to: one up to 6.2, the newest increment of several from 7.0 on."""
        increments = sorted((self.directory / "appendonlydir").glob("*.incr.aof"))
        return increments[-1] if increments else self.directory / "appendonly.aof"

    def lose_power(self, chance: random.Random) -> int:
        """Kill it, and cut its log where the page cache may have ended: at the last fsync, or anywhere above it.

        How many bytes went. Half the time all that may go does; else what is left mostly ends in mid-entry.
        """
        self.kill()
        log = self.log_file
        size, synced = log.stat().st_size, self.synced_bytes(log)
        assert 0 < synced <= size, f"{log.name} was never synced, or shrank: {synced} of {size}"
        kept = synced if chance.random() < 0.5 else chance.randint(synced, size)
        os.truncate(log, kept)
        return size - kept

    def synced_bytes(self, log: Path) -> int:
        """How much of a file is surely on disk."""
        inode = log.stat().st_ino
        rows = (line.split() for line in self._synced.read_text().splitlines())
        return max((int(size) for number, size in rows if int(number) == inode), default=0)
