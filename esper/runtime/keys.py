"""Keeps the keyring of a process that lives for long as its file says: keys are rotated and retired meanwhile."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import structlog

from esper.errors import SettingError
from esper.leyline.keys.keyring import RoleKeyring
from esper.runtime.ending import meanwhile

LOOK_EVERY_S, SOONEST_S = 1.0, 0.1
"""A file is there for longer than this before its new key is met."""

Mark: TypeAlias = tuple[int, int, int, int]

log = structlog.get_logger()


class KeyFile:
    """The file that a keyring came from. A new one is taken up as a whole, or not at all."""

    def __init__(self, keyring: RoleKeyring, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.keyring, self.path, self._clock = keyring, path, clock
        self._looked_s = -math.inf
        self._mark: Mark | None = None
        self._refused: Mark | None = None

    def look(self) -> bool:
        """Take up what the file says by now, if it is another one; whether it was. A bad one is told once."""
        mark, self._looked_s = self._read_mark(), self._clock()
        if mark == self._mark:
            self._refused = None  # as it was: what comes next is told again
        if mark is None or mark == self._mark:
            return False
        try:
            newer = RoleKeyring.load(self.path)
            is_other = newer.validities != self.keyring.validities
            if is_other:
                self.keyring.adopt(newer)
        except SettingError as error:
            if mark != self._refused:
                log.error("keyring.refused", path=str(self.path), why=str(error))
            self._refused = mark  # and looked at again: it may be the mode, or this process, that was at fault
            return False
        self._mark = mark
        if not is_other:
            return False
        ids = [f"{validity.key_id:08x}" for validity in newer.validities]
        log.info("keyring.adopted", path=str(self.path), keys=ids)
        return True

    def look_soon(self) -> bool:
        """The same, but not where it has just looked: anybody can send a flood under keys that nobody holds."""
        return self._clock() - self._looked_s >= SOONEST_S and self.look()

    def _read_mark(self) -> Mark | None:
        """What changes with the file; None while it is away, when what is held goes on."""
        try:
            met = self.path.stat()
        except OSError:
            return None
        return met.st_ino, met.st_mtime_ns, met.st_size, met.st_mode


@asynccontextmanager
async def kept_current(keyring: RoleKeyring, path: Path, every_s: float = LOOK_EVERY_S) -> AsyncIterator[None]:
    """Look at the file now, every so often while the block runs, and where a key is met that is not held.

    Who stood still since before the file was written may meet the new key before it looks again.
    """
    file = KeyFile(keyring, path)
    file.look()
    keyring.follow(file.look_soon)
    async with meanwhile(look_again(file, every_s)):
        yield


async def look_again(file: KeyFile, every_s: float) -> None:
    """Without end."""
    while True:
        await asyncio.sleep(every_s)
        file.look()
