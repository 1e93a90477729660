"""Clients for Redis: one that waits for entries, one that writes, neither of which ever repeats a command by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

import redis.asyncio as library
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from esper.bus.faults import FAILURES, LostError, translated, without_password
from esper.bus.outage import Outage
from esper.bus.packing import packed
from esper.bus.protocol import Argument
from esper.errors import BusError, SettingError

SCHEMES = ("redis://", "rediss://", "unix://")
CONNECT_S = 5.0
WRITE_S = 10.0
OLDEST_SERVER = (6, 2)
LAST_LOOK_S = 0.1

T = TypeVar("T")


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
    holders: WeakValueDictionary[tuple[str, str, str], Holder]
    """Who has entries of a stream, a group and a consumer in hand, and hears what was settled of them."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run one command, once."""
        return await self._in_time(super().execute_command(*args, **options))  # type: ignore[no-untyped-call]

    async def ask(self, words: Sequence[Argument]) -> Any:
        """Run one command, once; the reply as it came."""
        return (await self.ask_all([words]))[0]

    async def ask_all(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Run these in one round trip, once; the replies as they came. After an error any of them may have run."""
        return await self._in_time(self._exchange(commands)) if commands else []

    async def _exchange(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        pool: Any = self.connection_pool
        connection = await pool.get_connection()
        try:
            return await exchanged(connection, commands)
        finally:
            await pool.release(connection)

    async def _in_time(self, exchange: Awaitable[T]) -> T:
        try:
            return await in_time(self.deadline_s, exchange)
        except FAILURES as error:
            raise translated(error, self.url) from error


async def in_time(seconds: float | None, exchange: Awaitable[T]) -> T:
    """What the server answers; TimeoutError where it does not in that time.

    A process that was held up itself, by a signal, a busy machine or a long handler, finds the answer in its socket:
    a loop looks at timers before it looks at sockets, so that the first timer to run out only begins a last look.
    """
    if seconds is None:
        return await exchange
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        timer = loop.call_later(seconds, lambda: limit.reschedule(loop.time() + LAST_LOOK_S))
        try:
            return await exchange
        finally:
            timer.cancel()


async def exchanged(connection: Any, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    """The replies to these commands. Where one is an error, those behind it go down with the connection."""
    await connection.send_packed_command(packed(commands, connection))
    replies: list[Any] = []
    try:
        for _ in commands:
            replies.append(await connection.read_response())
    finally:
        if len(replies) < len(commands):
            await connection.disconnect()
    return replies


def client(url: str, deadline_s: float | None) -> Redis:
    """A client with the library's retries off: with them one XADD through a paused server became two entries.

    RESP2 unless the URL says `?protocol=3`: its replies have one shape in every version of the library and the server.
    """
    if not url.startswith(SCHEMES):
        raise SettingError("ESPER_REDIS_URL", without_password(url), f"a URL that begins with {', '.join(SCHEMES)}")
    options: dict[str, Any] = {} if url.startswith("unix:") else {"socket_keepalive": True}
    try:
        made: Any = Redis.from_url(
            url,
            decode_responses=False,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=CONNECT_S,
            health_check_interval=0,
            **options,
        )
    except ValueError as error:
        raise SettingError("ESPER_REDIS_URL", without_password(url), f"a Redis URL ({error})") from error
    made.url, made.outage, made.deadline_s, made.holders = url, Outage(), deadline_s, WeakValueDictionary()
    made.set_response_callback("XAUTOCLAIM", as_it_came)
    return cast(Redis, made)


def reader(url: str) -> Redis:
    """For blocking reads: no deadline of its own; who reads sets one above its BLOCK."""
    return client(url, None)


def writer(url: str) -> Redis:
    """For everything else. A command that is not answered in ten seconds raises LostError; it may have taken effect."""
    return client(url, WRITE_S)


async def wait_ready(redis: Redis, patience_s: float = 10.0) -> None:
    """Return once the server answers; raise what it last said when it doesn't in time."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            await redis.execute_command("PING")
            return
        except LostError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.05)


async def check_server(redis: Redis) -> None:
    """Refuse a server that is too old, read-only, or that may evict what was acknowledged."""
    facts = await redis.info()
    at, version = without_password(redis.url), str(facts["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SERVER:
        raise BusError(f"Redis at {at} is version {version}; expected 6.2 or newer")
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise BusError(f"Redis at {at} has maxmemory-policy {policy}, which may evict streams; expected noeviction")
    if facts.get("role", "master") != "master":
        raise BusError(f"Redis at {at} is a read-only replica; expected the primary's URL")


async def server_ms(redis: Redis) -> int:
    """The server's clock, in milliseconds since the epoch."""
    seconds, microseconds = await redis.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


class ServerClock:
    """The server's clock as of the last look, carried on by our monotonic one."""

    def __init__(self) -> None:
        self.offset_ms: int | None = None

    async def look(self, redis: Redis) -> None:
        """Read the server's clock; halfway through the round trip is when it was read."""
        before = time.monotonic_ns()
        there = await server_ms(redis)
        self.offset_ms = there - (before + time.monotonic_ns()) // 2_000_000

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the server."""
        if self.offset_ms is None:
            raise BusError("the server's clock was asked for before it was looked at")
        return self.offset_ms + time.monotonic_ns() // 1_000_000
