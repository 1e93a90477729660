"""Who leads where several could: whoever moves the version of the shared windows on, for as long as it does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex

import structlog

from esper.bus.connect import Redis
from esper.bus.faults import UnavailableError
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.errors import StaleLeaseError
from esper.runtime.quitting import unless_silent
from esper.runtime.serving.windows import HOLDERS, RESIGNED, VERSION

LEASE_S = 3.0
RENEWALS = 6
"""In one lease: a leader on a busy machine may miss some of them."""
LOOK_S = 0.25

log = structlog.get_logger()


class Standby:
    """Watches a leader that is another process, until its lease has run out.

    A lease needs no clock but one's own: each settlement of a leader moves the version on and expects the one before
    it. Where it has not moved for a whole lease, whoever moves it next, leads, and all that the old leader settles
    afterwards is refused by the server, however late it wakes up. A server that is away makes no lease run out.
    Nor does a loss of history: the leader, which alone remembers what took effect, has a lease to claim it again.
    """

    def __init__(
        self, redis: Redis, hash_key: str, lease_s: float = LEASE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.outbox, self.hash_key, self.lease_s, self._clock = Outbox(redis), hash_key, lease_s, clock
        self._found: bytes | None = None
        self._holders = b""
        self._seen: bytes | None = None
        self._met = False  # whether anybody was seen to lead
        self._since_s = 0.0

    async def until_free(self, stopping: asyncio.Event) -> bool:
        """Wait until nobody leads, and be the first to lead then; False: told to stop before that."""
        return bool(await unless_silent(self._until_free(stopping), stopping, self.outbox.redis, self.hash_key))

    async def _until_free(self, stopping: asyncio.Event) -> bool:
        if not await self._is_first():
            log.info("coordinator.stands_by", lease_s=self.lease_s)
            while not (stopping.is_set() or await self._is_first()):
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(LOOK_S, self.lease_s / RENEWALS)):
                        await stopping.wait()
        return not stopping.is_set()

    async def is_free(self) -> bool:
        """Look once: whether nobody has ever led, the last leader has resigned, or its lease has run out."""
        began_s = self._clock()
        try:
            found = await self.outbox.redis.ask(("HMGET", self.hash_key, VERSION, RESIGNED, HOLDERS))
        except UnavailableError:
            self._seen = None
            return False
        version, resigned, holders = found
        self._found, self._holders, now_s = version, holders or b"", self._clock()
        if version == resigned and not (version is None and self._met):
            return True
        self._met, version = True, version or b""
        if version != self._seen or now_s - began_s > LOOK_S:
            self._seen, self._since_s = version, now_s
        return now_s - self._since_s >= self.lease_s

    async def claim(self) -> bool:
        """Move the version on from where the last look found it: of several who found it free at once, one can.

        The others see that it moved, and leave whoever did that a lease to take over. The claim is on record among the
        holders: Redis may fall back to it.
        """
        claim, holder = Settlement(), token_hex(8).encode()
        claim.expect(self.hash_key, VERSION, self._found)
        claim.put(self.hash_key, {VERSION: holder + b"/0", HOLDERS: b" ".join([*self._holders.split(), holder])})
        try:
            await self.outbox.settle(claim)
        except (StaleLeaseError, UnavailableError):
            return False
        return True

    async def _is_first(self) -> bool:
        return await self.is_free() and await self.claim()
