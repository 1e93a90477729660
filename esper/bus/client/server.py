"""A client of one server: every failure of a command is an error of ours, and none is repeated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakValueDictionary

import redis.asyncio as library
from redis.exceptions import RedisError

from esper.bus.client.deadline import by, ends_in, in_time
from esper.bus.client.diagnosis import diagnosed
from esper.bus.client.line import Line, Streamed, line_of
from esper.bus.client.packing import in_words
from esper.bus.faults import FAILURES, ElsewhereError, LostError, UnavailableError, naming_its_key, translated
from esper.bus.outage import Outage
from esper.bus.protocol import Argument
from esper.errors import BusError

GOODBYE_S = 0.5
"""For a server to take what was sent and, over TLS, to answer the goodbye. The library waits five seconds for each
connection and then raises: a runtime has four clients, and a trainer that waits to hear what became of it."""


def as_it_came(reply: Any, **_: Any) -> Any:
    """The library drops XAUTOCLAIM's cursor when it parses the reply."""
    return reply


class Holder(Protocol):
    """Remembers which entries are in hand."""

    def forget(self, entry_ids: Iterable[str]) -> None: ...


class Redis(library.Redis):
    """The library's client; every failure of a command is a BusError, the URL is known, and a deadline is ours.

    The library's own timeout of a socket is left off: on Python 3.11 it goes through wait_for, which may swallow a
    cancellation, and costs a task for each command.
    """

    url: str = ""
    outage: Outage
    deadline_s: float | None = None
    known = False
    """Whether it has answered, or was looked into: from then on a loss is no matter of TLS."""
    holders: WeakValueDictionary[tuple[str, str, str], Holder]
    """Who has entries of a stream, a group and a consumer in hand, and hears what was settled of them."""
    holds_on = True
    """Whether a connection stays in hand between commands: the library's pool takes as long to give it out and to take
    it back as the exchange itself."""
    _idle: list[Line]
    """Over connections in hand, in use as the pool sees it."""
    by_slot = False
    """Whether keys of different hash tags may lie on different servers, so that no one call names both."""

    async def servers(self) -> list[Redis]:
        """A client for each server that holds keys: this one."""
        return [self]

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run one command, once."""
        try:
            answer = await in_time(self.deadline_s, super().execute_command(*in_words(args), **options))  # type: ignore[no-untyped-call]
        except FAILURES as error:
            raise await self._said(error) from error
        self.known = True
        return answer

    async def ask(self, words: Sequence[Argument], within_s: float | None = None) -> Any:
        """Run one command, once; the reply as it came."""
        return (await self.ask_all([words], within_s))[0]

    async def ask_beside(self, key: str, words: Sequence[Argument]) -> Any:
        """The same of the server that holds this key, which the command need not name."""
        return await self.ask(words)

    async def time_at(self, key: str) -> Any:
        """By the clock that numbers the entries of this key, as TIME tells it."""
        return await self.ask_beside(key, ("TIME",))

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Hang up, whatever is under way; a server that is silent is not waited for, and no error of this one's."""
        with suppress(*FAILURES):
            await in_time(GOODBYE_S, self._hung_up(close_connection_pool))

    async def _hung_up(self, close_connection_pool: bool | None) -> None:
        await super().aclose(close_connection_pool)

    async def ask_all(self, commands: Sequence[Sequence[Argument]], within_s: float | None = None) -> list[Any]:
        """Run these in one round trip, once; the replies as they came. After an error any of them may have run.

        `within_s`: for whoever asks for longer than the client's own deadline, or has none.
        """
        if not commands:
            return []
        idle, end = self._idle, ends_in(self.deadline_s if within_s is None else within_s)
        try:
            if idle and idle[-1].is_ready():
                replies = await self._over(idle.pop(), commands, end)
            else:
                replies = await by(end, self._over_one_taken(commands, end))
        except FAILURES as error:
            raise await self._said(error) from error
        self.known = True
        return replies

    async def _over_one_taken(self, commands: Sequence[Sequence[Argument]], end: float) -> list[Any]:
        return await self._over(await self._taken(), commands, end)

    async def _over(self, line: Line, commands: Sequence[Sequence[Argument]], end: float) -> list[Any]:
        try:
            replies = await line.exchange(commands, end)
        except RedisError as error:
            await self._judged(line, [error])
            raise
        else:
            if errors := [reply for reply in replies if isinstance(reply, RedisError)]:
                await self._judged(line, errors)
                raise naming_its_key(errors[0], commands[replies.index(errors[0])])
            return replies
        finally:
            if self.holds_on:
                self._idle.append(line)
            else:
                await self.connection_pool.release(line.connection)

    async def _judged(self, line: Line, errors: Iterable[RedisError]) -> None:
        """Close it where one of them means a server that can't serve now: by now the address may lead to another."""
        met = [translated(error, self.url) for error in errors]
        if any(isinstance(each, UnavailableError) and not isinstance(each, ElsewhereError) for each in met):
            await line.close()

    async def _taken(self) -> Line:
        """A line that is sound: one in hand, else over a connection from the pool, which opens it where need be."""
        pool: Any = self.connection_pool
        while self._idle:
            line = self._idle.pop()
            try:
                if await line.is_sound():
                    return line
                await line.close()
            except BaseException:  # a cancellation: the pool counts it as in use, so it stays in hand
                self._idle.append(line)
                raise
            await pool.release(line.connection)
        connection = await pool.get_connection()
        return line_of(connection) if self.holds_on else Streamed(connection)

    async def _said(self, error: RedisError | OSError | RuntimeError) -> BusError:
        """The error of ours for what an exchange met."""
        met = translated(error, self.url)
        is_late = isinstance(error, TimeoutError) and not self.url.startswith("rediss:")  # a handshake has no answer
        return await self._explained(met) if isinstance(met, LostError) and not is_late else met

    async def _explained(self, error: BusError) -> BusError:
        """Before it ever answered, it is looked into: a server that wants TLS hangs up as one that goes away."""
        if self.known:
            return error
        explained = await diagnosed(error, self.url)
        self.known = explained is error  # else whoever asked at the same time is told the same
        return explained
