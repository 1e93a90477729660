"""Reads along with a live run: its messages from their streams, and what stands beside them, once a second or so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, TypeVar

import structlog

from esper.bus import connect, names, tail
from esper.bus.faults import ForbiddenError, UnavailableError
from esper.bus.runs import RunRecord
from esper.bus.upkeep import counters
from esper.bus.upkeep.survey import lags
from esper.errors import BusError, SettingError
from esper.leyline.entries import entry_order
from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.kinds import OPENS, Domain, Role
from esper.leyline.seal import Opened, Opener
from esper.runtime import access
from esper.runtime.access import Access
from esper.runtime.ending import along, end
from esper.runtime.operations.tallies import refused
from esper.runtime.watching.observer import Observer, Refused

T = TypeVar("T")

log = structlog.get_logger()

BACKLOG: Mapping[str, int] = MappingProxyType(
    {
        "heartbeats": 256,
        "receipts": 2_048,
        "decisions": 512,
        "commands": 512,
        "optimizer": 512,
        "emergency": 64,
        "state": 512,
        "global": 64,
    }
)
"""By stream, in the order in which they are read first: how many of its newest entries."""
_SEALED_BY = {"commands": (Domain.COMMAND, Role.CONTROLLER), "optimizer": (Domain.OPTIMIZER, Role.OPTIMIZER)}
LOOK_EVERY_S, ANSWER_S = 1.0, 3.0
Earlier: TypeAlias = Mapping[str, Sequence[Opened]]
NOTHING: Earlier = MappingProxyType({})
SURVEY_EVERY = 3  # looks: every group of the streams that workers act on is asked for


class Sink(Protocol):
    """Who takes what is read: `esper.view.picture.Picture`."""

    def note(self, opened: Opened) -> None: ...
    def look(self, look: Look) -> None: ...


@dataclass(frozen=True, slots=True)
class Look:
    """What stands beside the messages at one moment of the server's clock."""

    at_ms: int
    totals: Mapping[bytes, bytes] | None  # None: they may not be read
    lags: Mapping[tuple[str, str], int | None]
    refused: Mapping[str, Mapping[str, int]]


@dataclass
class Watch:
    """The reading of one run. Holds no group, acknowledges nothing, and writes nothing."""

    run_id: str
    observer: Observer
    redis: connect.Redis
    clock: connect.ServerClock
    sink: Sink
    trouble: str = ""  # why the newest look was not answered; empty: it was
    unread: dict[str, str] = field(default_factory=dict)  # streams that this user may not read, each with why
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # set whenever the sink was given something
    _lags: Mapping[tuple[str, str], int | None] = field(default_factory=dict)
    _reading: list[asyncio.Task[None]] = field(default_factory=list)
    _told: set[str] = field(default_factory=set)  # why looks were refused

    def now_ms(self) -> int:
        """The server's clock."""
        return self.clock.now_ms()

    async def catch_up(self, backlog: Mapping[str, int], earlier: Earlier = NOTHING) -> dict[str, str]:
        """Read the newest entries of each stream, and look once: where to go on from. ForbiddenError: none may be."""
        positions = {}
        for name, count in backlog.items():
            stream = names.key(self.run_id, name)
            for opened in earlier.get(name, ()):
                self.sink.note(opened)
            with self._permitted(stream):
                positions[stream] = await self._newest(stream, count)
        if self.unread and not positions:
            raise ForbiddenError(next(iter(self.unread.values())))
        await self.look(surveying=True)
        return positions

    def start(self, positions: Mapping[str, str]) -> None:
        """Go on from there, until stopped."""
        follows = [self._follow(stream, since) for stream, since in positions.items()]
        self._reading = [asyncio.create_task(part) for part in (*follows, self._look_again())]

    async def stop(self) -> None:
        await end(self._reading)

    async def along(self, work: Coroutine[object, object, T]) -> T:
        """Do this work; what goes wrong with the reading for good is raised here."""
        return await along(work, self._reading)

    async def look(self, *, surveying: bool) -> None:
        """Read what stands beside the messages. A server that does not answer is waited for, and named."""
        try:
            await self.clock.look(self.redis)
            totals: Any = await permitted(self.redis.hgetall(names.key(self.run_id, "totals")), None, self._told)
            said = await permitted(counters.read(self.redis, self.run_id, self.now_ms()), {}, self._told)
            if surveying:
                self._lags = await permitted(lags(self.redis, self.run_id, names.POSITIONED), {}, self._told)
        except BusError as error:
            self.trouble = str(error)
        else:
            self.trouble = ""
            self.sink.look(Look(self.now_ms(), totals, self._lags, refused(said.values())))
        self.changed.set()

    async def _newest(self, stream: str, count: int) -> str:
        """Where the stream ended when it was asked; what comes behind that is followed."""
        position = await self.observer.position(stream)
        for opened in await self.observer.newest(stream, count):
            if entry_order(opened.entry_id) <= entry_order(position):
                self.sink.note(opened)
        return position

    @contextmanager
    def _permitted(self, stream: str) -> Iterator[None]:
        """Go on without a stream that the server does not let this user read, and keep in mind which."""
        try:
            yield
        except ForbiddenError as error:
            name = stream.rpartition(":")[2]
            log.warning("stream.refused", stream=stream, why=str(error))
            self.unread[name] = str(error)
            self.changed.set()

    async def _look_again(self) -> None:
        num_looks = 0
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            num_looks += 1
            await self.look(surveying=num_looks % SURVEY_EVERY == 0)

    async def _follow(self, stream: str, since: str) -> None:
        with self._permitted(stream):
            async with aclosing(self.observer.messages(stream, since)) as messages:
                async for opened in messages:
                    self.sink.note(opened)
                    self.changed.set()
        await asyncio.Event().wait()  # the others go on


async def permitted(reading: Awaitable[T], otherwise: T, told: set[str]) -> T:
    """What was read, or this where the server answers and refuses: a user may not read everything. Why is told once."""
    try:
        return await reading
    except UnavailableError:
        raise
    except BusError as error:
        if (why := str(error)) not in told:
            told.add(why)
            log.debug("look.refused", why=why)
        return otherwise


@asynccontextmanager
async def watching(
    found: Access,
    name: str,
    sink: Sink,
    backlog: Mapping[str, int] = BACKLOG,
    on_refusal: Refused | None = None,
    earlier: Earlier = NOTHING,
) -> AsyncIterator[Watch]:
    """The sink has caught up when the block begins, and is fed while it runs; `on_refusal` hears of what won't open.
    `earlier`: by stream, what the sink is given before the newest of it.

    SettingError, BusError: no such Redis.
    """
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(connect.reader(found.redis_url))
        asker = await stack.enter_async_context(connect.client(found.redis_url, ANSWER_S))
        await stack.enter_async_context(found.kept_current())
        clock = connect.ServerClock(names.key(found.run_id, "heartbeats"))
        await clock.look(asker)
        watch = Watch(found.run_id, observer_of(found, name, reader, clock, on_refusal), asker, clock, sink)
        readable = {stream: count for stream, count in backlog.items() if opens(found.keyring.roles, stream)}
        watch.start(await watch.catch_up(readable, earlier))
        stack.push_async_callback(watch.stop)
        yield watch


async def reach(run: str | None) -> Access:
    """A run as whoever reads along reaches it: with an observer's keyring where there is one, else with any."""
    try:
        return await access.find(run, role=Role.OBSERVER)
    except SettingError:
        return await access.find(run)


def of_record(record: RunRecord) -> Access:
    """A run on an embedded Redis, by the observer's keyring in its directory."""
    path = record.keyring(Role.OBSERVER)
    return Access(record.run_id, record.reach, RoleKeyring.load(path), path)


async def may_publish(run: str | None) -> bool:
    """Whether the keyring that a client takes holds a controller's key."""
    try:
        return Role.CONTROLLER in (await access.find(run)).keyring.roles
    except SettingError:
        return False


def observer_of(
    found: Access, name: str, reader: connect.Redis, clock: connect.ServerClock, on_refusal: Refused | None
) -> Observer:
    """Opens whatever the keyring can, commands too where an observer's keys are held.

    What it reads changes nothing, so that repeats are harmless; and deadlines were the judge's to check.
    """
    opener = Opener(found.keyring, name=name, guard=None, accept=frozenset(Domain) - {Domain.VOTE}, carries_out=True)
    return Observer(
        partial(tail.follow, reader),
        partial(tail.last, reader),
        lambda sealed, entry_id: opener.open(sealed, entry_id, clock.now_ms()),
        on_refusal,
    )


def opens(roles: Iterable[Role], stream: str) -> bool:
    """Whether a keyring of these roles opens what is on a stream; a controller's opens no commands, nor its own."""
    pair = _SEALED_BY.get(stream)
    return pair is None or any(pair in OPENS[role] for role in roles)
