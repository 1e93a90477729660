"""What a consumer has seen, persisted with its effects, in one hash that names its holder and counts settlements."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from contextlib import suppress
from secrets import token_hex
from typing import Literal, TypeAlias

import structlog

from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.errors import BusError, StaleLeaseError
from esper.leyline.merging import absorb
from esper.leyline.replay import ReplayGuard
from esper.runtime.serving.missing import Missing

VERSION, HOLDERS, GAPS = "version", "holders", "gaps"
RESIGNED = "resigned"
"""The version with which a holder has ended in order: nobody need wait for it."""
RESIGN_S = 1.0
NUM_HOLDERS = 32
"""Remembered by name: Redis may fall back to what an earlier one of them has stored."""

Found: TypeAlias = Literal["whole", "older", "nothing"]
"""What Redis still held of what was settled before."""

log = structlog.get_logger()


class ReplacedError(StaleLeaseError):
    """Another process has taken over."""

    def __init__(self, key: str) -> None:
        super().__init__(key, VERSION)
        self.args = (f"another process has taken over, as {key} says; nothing was written, and this one ends",)


class UnreadableError(BusError):
    """What is stored is none of ours, so that it tells nothing of what was seen."""

    def __init__(self, key: str, why: Exception) -> None:
        self.key = key
        expected = "what was settled, or no such key: DEL it, a minute after the last command at the earliest"
        super().__init__(f"{key} holds what no process of the run has written ({why}); expected {expected}")


class Windows:
    """The replay guards of a consumer with groups of its own, by log, and what it misses.

    Every settlement moves a version on, and expects the one before it: an older one says that Redis fell back (a crash,
    a failover), none at all that its history is lost, another holder's that this process was replaced. Where effects
    are in Redis they fell back with it: `settle` takes up again what is stored there. Where they are elsewhere, what
    was carried out must not be again: `insist` writes anew what is remembered here.
    """

    def __init__(self, hash_key: str, outbox: Outbox, guards: Mapping[str, ReplayGuard], missing: Missing) -> None:
        self.hash_key, self.guards, self.missing = hash_key, guards, missing
        self.holder = token_hex(8)
        self.outbox, self._turn = outbox, asyncio.Lock()
        self._settled: dict[str, bytes] = {}
        self._untold: dict[str, bytes] = {}
        self._version: bytes | None = None
        self._holders = [self.holder]
        self._count = 0
        self._whole = False

    async def load(self) -> None:
        """Take up what is stored: at the start, before anything is opened."""
        self._adopt(await self._stored())

    async def take_over(self) -> None:
        """The same, and from now on nobody else may insist: of a name, the newest process to say so is in charge."""
        is_taken = False
        while not is_taken:
            stored = await self._stored()
            before = stored.get(HOLDERS, b"").decode(errors="replace").split()
            self._holders = [*before[-NUM_HOLDERS:], self.holder]
            mine = {VERSION: self._next(), HOLDERS: " ".join(self._holders).encode()}
            claim = Settlement()
            claim.expect(self.hash_key, VERSION, stored.get(VERSION))
            claim.put(self.hash_key, mine)
            with suppress(StaleLeaseError):  # it has just settled something more
                await self.outbox.settle(claim)
                is_taken = True
        self._adopt(stored | mine)

    async def resign(self) -> None:
        """Say that nothing more will be settled here, unless somebody else is in charge by now, or the server away."""
        async with self._turn:
            settlement, version = Settlement(), self._next()
            settlement.expect(self.hash_key, VERSION, self._version)
            settlement.put(self.hash_key, {VERSION: version, RESIGNED: version})
            with suppress(StaleLeaseError, BusError, TimeoutError):
                async with asyncio.timeout(RESIGN_S):
                    await self.outbox.settle(settlement)

    async def settle(self, settlement: Settlement) -> list[str]:
        """With what was noted since the last time. StaleLeaseError: nothing was written, and nothing was noted."""
        changed, version = self._changed(), self._next()
        settlement.put(self.hash_key, {**(self._settled if self._whole else {}), **changed, VERSION: version})
        settlement.expect(self.hash_key, VERSION, None if self._whole else self._version)
        try:
            written = await self.outbox.settle(settlement)
        except StaleLeaseError:
            await self._recover()
            raise
        self._took_effect(changed, version)
        return written

    async def insist(self, settlement: Settlement, *, renew: bool = False) -> Found:
        """The same, come what may: without the entries that Redis has lost, and all windows anew where it lost them.

        `renew`: move the version on though there is nothing to settle, to show that its holder is at work. To be called
        once `take_over` has returned. ReplacedError: nothing was written, and nothing can be any more.
        """
        async with self._turn:
            changed, version = self._changed(), self._next()
            if settlement.empty and not changed and not renew:
                return "whole"
            settlement.put(self.hash_key, {**changed, VERSION: version})
            settlement.expect(self.hash_key, VERSION, self._version)
            found = await self._settle_rest(settlement)
            self._took_effect(changed, version)
            return found

    def tell(self) -> dict[str, bytes]:
        """What has changed since the last call, and what is noted and not settled: for whoever keeps a copy."""
        told, self._untold = self._untold, {}
        unsettled = {name: guard.unsettled() for name, guard in self.guards.items()}
        return told | {
            f"{name}/{field}": value for name, fields in unsettled.items() for field, value in fields.items()
        }

    def absorb(self, fields: Mapping[str, bytes]) -> None:
        """Take up a copy that somebody kept: what it knows and Redis has lost. Persisted with the next effect."""
        for name, guard in self.guards.items():
            absorb(guard, part(fields, name))
        if not part(self._settled, GAPS):
            self.missing.load(part(fields, GAPS))

    async def _settle_rest(self, settlement: Settlement) -> Found:
        found: Found = "whole"
        while True:
            try:
                await self.outbox.settle(settlement)
                return found
            except StaleLeaseError as error:
                if error.stream == self.hash_key:
                    found = await self._renew(settlement)
                else:
                    log.warning("lease.lost", stream=error.stream, entry_id=error.entry_id)
                    settlement.give_up(error)

    async def _renew(self, settlement: Settlement) -> Found:
        """Replace whatever is stored by all that is remembered; of two processes that do so at once, one is refused."""
        stored = await self._stored()
        version = stored.pop(VERSION, None)
        if version is not None and version.decode(errors="replace").partition("/")[0] not in self._holders:
            raise ReplacedError(self.hash_key)
        self._note_loss(version)
        settlement.expectations[:] = [each for each in settlement.expectations if each.key != self.hash_key]
        settlement.expect(self.hash_key, VERSION, version)
        gone = dict.fromkeys(stored, b"")
        settlement.put(self.hash_key, {**gone, **self._settled, **settlement.puts.get(self.hash_key, {})})
        return "nothing" if version is None else "older"

    async def _recover(self) -> None:
        stored = await self._stored()
        version = stored.get(VERSION)
        lost = self._version is not None and version is None
        if not self._whole if lost else version != self._version:
            self._note_loss(version)
        self._whole = lost
        self._adopt({**self._settled, VERSION: self._version} if lost and self._version is not None else stored)

    def _note_loss(self, version: bytes | None) -> None:
        if version is not None:  # else the inbox has said that history is lost
            known = (self._version or b"").decode(errors="replace")
            log.warning("windows.fell_back", key=self.hash_key, known=known, found=version.decode(errors="replace"))

    def _changed(self) -> dict[str, bytes]:
        parts = {name: guard.changed() for name, guard in self.guards.items()} | {GAPS: self.missing.changed()}
        return {f"{name}/{field}": value for name, fields in parts.items() for field, value in fields.items()}

    def _next(self) -> bytes:
        self._count += 1
        return f"{self.holder}/{self._count}".encode()

    def _took_effect(self, changed: Mapping[str, bytes], version: bytes) -> None:
        for name, value in changed.items():
            if value:
                self._settled[name] = value
            else:
                self._settled.pop(name, None)
        self._untold |= changed
        self._version, self._whole = version, False
        self.missing.tell()

    def _adopt(self, fields: dict[str, bytes]) -> None:
        self._version = fields.pop(VERSION, None)
        self._settled = fields
        self._untold = {name: value for name, value in fields.items() if name != HOLDERS}
        try:
            for log_name, guard in self.guards.items():
                guard.load(part(fields, log_name))
            self.missing.load(part(fields, GAPS))
        except (ValueError, struct.error) as error:
            raise UnreadableError(self.hash_key, error) from error

    async def _stored(self) -> dict[str, bytes]:
        stored = await self.outbox.recall(self.hash_key)
        return {name.decode(errors="replace"): value for name, value in stored.items()}


def part(fields: Mapping[str, bytes], log_name: str) -> dict[str, bytes]:
    """The fields of one log."""
    start = f"{log_name}/"
    return {name.removeprefix(start): value for name, value in fields.items() if name.startswith(start)}
