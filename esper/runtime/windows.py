"""What a consumer has seen, persisted with its effects: follows a Redis that fell back, restores one that lost all."""

from __future__ import annotations

import structlog

from esper.bus.outbox import Outbox
from esper.bus.settlement import Settlement
from esper.errors import StaleLeaseError
from esper.leyline.replay import ReplayGuard
from esper.runtime.missing import Missing

VERSION = "version"
GAPS = "gaps/"

log = structlog.get_logger()


class Windows:
    """The replay guard of a consumer with a group of its own, what it misses, and the hash that keeps both.

    Every settlement moves a version on. Where Redis holds an older one, it fell back (a crash, a failover) and the
    effects with it: what is remembered here is thrown away for what is stored there. Where it holds none at all,
    its history is lost: what was carried out before must not be again, so the hash is written anew from memory.
    """

    def __init__(self, hash_key: str, outbox: Outbox, guard: ReplayGuard, missing: Missing) -> None:
        self.hash_key, self.guard, self.missing = hash_key, guard, missing
        self.num_fallen_back = self.num_restored = 0
        self._outbox = outbox
        self._settled: dict[str, bytes] = {}
        self._version: bytes | None = None
        self._whole = False

    async def load(self) -> None:
        """Take up what is stored: at the start, before anything is opened."""
        self._adopt(await self._stored())

    async def settle(self, settlement: Settlement) -> list[str]:
        """With what was noted since the last time. StaleLeaseError: nothing was written, and nothing was noted."""
        changed = self.guard.changed() | {GAPS + name: value for name, value in self.missing.changed().items()}
        version = str(int(self._version or 0) + 1).encode()
        settlement.put(self.hash_key, {**(self._settled if self._whole else {}), **changed, VERSION: version})
        settlement.expect(self.hash_key, VERSION, None if self._whole else self._version)
        try:
            written = await self._outbox.settle(settlement)
        except StaleLeaseError:
            await self._recover()
            raise
        self._settled.update(changed)
        self._version, self._whole = version, False
        self.missing.tell()
        return written

    async def _recover(self) -> None:
        stored = await self._stored()
        lost = self._version is not None and VERSION not in stored
        if lost and not self._whole:
            self.num_restored += 1  # the inbox has said that history is lost
        elif not lost and stored.get(VERSION) != self._version:
            self.num_fallen_back += 1
            log.warning("windows.fell_back", key=self.hash_key, version=int(stored.get(VERSION, b"0")))
        self._whole = lost
        self._adopt(
            {**self._settled, **({} if self._version is None else {VERSION: self._version})} if lost else stored
        )

    def _adopt(self, fields: dict[str, bytes]) -> None:
        self._version = fields.pop(VERSION, None)
        self._settled = fields
        self.guard.load({name: value for name, value in fields.items() if not name.startswith(GAPS)})
        self.missing.load({name.removeprefix(GAPS): value for name, value in fields.items() if name.startswith(GAPS)})

    async def _stored(self) -> dict[str, bytes]:
        stored = await self._outbox.recall(self.hash_key)
        return {name.decode(): value for name, value in stored.items()}
