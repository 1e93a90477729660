"""Carries a settlement out in one round trip, exactly once, also when the reply to it is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from secrets import token_hex
from typing import Any, TypeVar

from esper.bus.backoff import Backoff
from esper.bus.connect import Redis
from esper.bus.faults import NoScriptError, UnavailableError
from esper.bus.names import beside
from esper.bus.script import SHA, SOURCE, Argument, arguments
from esper.bus.settlement import Settlement
from esper.errors import BusError, StaleLeaseError

PATIENCE_S = 60.0

T = TypeVar("T")


class Outbox:
    """One per process and run, on a writer. Settles one settlement at a time, in the order asked for."""

    def __init__(self, redis: Redis, patience_s: float = PATIENCE_S) -> None:
        self.redis, self.patience_s = redis, patience_s
        self._name, self._count = token_hex(8), 0
        self._turn = asyncio.Lock()

    async def settle(self, settlement: Settlement) -> list[str]:
        """Ids of the messages written, in order. StaleLeaseError: an entry was taken over, nothing was written.

        A server that is lost, read-only or out of memory is waited out: the script recognises a settlement that went
        through before its reply was lost.
        """
        if settlement.empty:
            return []
        async with self._turn:
            self._count += 1
            keys, argv = arguments(settlement, self._memory(settlement), f"{self._count}:")
            reply = await self._until_answered(partial(self._call, [len(keys), *keys, *argv]))
        return [entry_id.decode() for entry_id in self._accepted(reply)][: len(settlement.writes)]

    async def recall(self, hash_key: str) -> dict[bytes, bytes]:
        """Every field of a record, with the same patience."""
        return await self._until_answered(partial(self._fields, hash_key))

    async def _fields(self, hash_key: str) -> dict[bytes, bytes]:
        fields: Any = await self.redis.hgetall(hash_key)
        return dict(fields)

    def _memory(self, settlement: Settlement) -> str:
        """A key of our own in the slot of the settlement's keys."""
        named = [stream for stream, _, _ in settlement.acks] + [write.stream for write in settlement.writes]
        named += [*settlement.puts, *(e.key for e in settlement.expectations)]
        return beside(named[0], f"settled:{self._name}")

    async def _until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        backoff, deadline = Backoff(), time.monotonic() + self.patience_s
        while True:
            try:
                reply = await ask()
            except UnavailableError as error:
                self.redis.outage.begins("outbox", error)
                if time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(backoff.next_s())
            else:
                self.redis.outage.ends("outbox")
                return reply

    async def _call(self, call: list[Argument]) -> list[bytes]:
        try:
            reply: Any = await self.redis.execute_command("EVALSHA", SHA, *call)
        except NoScriptError:
            reply = await self.redis.execute_command("EVAL", SOURCE, *call)
        return list(reply)

    def _accepted(self, reply: list[bytes]) -> list[bytes]:
        match [part.decode(errors="replace") for part in reply]:
            case ["stale", stream, entry_id]:
                raise StaleLeaseError(stream, entry_id)
            case ["type", key, found, wanted]:
                raise BusError(f"key {key} holds a {found}; expected a {wanted}")
        return reply[1:]
