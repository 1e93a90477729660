"""A redis-server whose every fsync is noted, so that what a power loss takes can be taken: all that was not synced."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Self

from esper.bus.embedded import TORN
from tests.faults.processes import wait_until
from tests.faults.server import Server

SOURCE = Path(__file__).with_name("fsync_log.c")


class SyncedServer(Server):
    """Loses power when told to. The library that notes the fsyncs is built with the machine's C compiler."""

    num_healed = 0

    def start(self) -> Self:
        """As the embedded server does, and docs ask of others: a log that was torn is written anew before it grows."""
        said_before = self.log.stat().st_size if self.log.exists() else 0
        super().start()
        if TORN in self.log.read_bytes()[said_before:]:
            self.num_healed += 1
            self.ask("BGREWRITEAOF")
            wait_until(lambda: not self.ask("INFO", "persistence")["aof_rewrite_in_progress"], "the log is rewritten")
        return self

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
        increments = (self.directory / "appendonlydir").glob("*.incr.aof")
        return max(increments, key=lambda path: path.stat().st_mtime_ns, default=self.directory / "appendonly.aof")

    def lose_power(self, chance: random.Random) -> int:
        """Kill it, and cut its log where the page cache may have ended: at the last fsync, or anywhere above it.

        How many bytes went. Half the time all that may go does; else what is left mostly ends in mid-entry.
        """
        self.kill()
        log = self.log_file
        size, synced = log.stat().st_size, self.synced_bytes(log)
        assert synced <= size, f"{log.name} shrank: {synced} of {size}"
        kept = synced if chance.random() < 0.5 else chance.randint(synced, size)
        os.truncate(log, kept)
        return size - kept

    def synced_bytes(self, log: Path) -> int:
        """How much of a file is surely on disk: by its newest fsync, as a rewritten log may have the number of one that
        is gone."""
        inode = log.stat().st_ino
        said = self._synced.read_text() if self._synced.exists() else ""  # by its first fsync
        rows = (line.split() for line in said.splitlines())
        sizes = [int(size) for number, size in rows if int(number) == inode]
        return sizes[-1] if sizes else 0
