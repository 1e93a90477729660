"""A load's way into a run: its keys, its connections, and the work that they carry."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from esper.bench.load.asking import Asking, Awaiting
from esper.bench.load.barrier import Rounds
from esper.bench.load.command import Answered
from esper.bench.load.loop import Work
from esper.bench.load.settings import Load
from esper.bench.load.tally import Tally
from esper.bench.load.telemetry import Folded, Packets
from esper.bus import connect, names
from esper.bus.publisher import Publisher
from esper.client import observing
from esper.errors import SettingError, near
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Opened, Sealer
from esper.runtime import access
from esper.runtime.watching.dispatch import Dispatch
from esper.runtime.watching.observer import Observer

READERS = frozenset({Role.OBSERVER, Role.CONTROLLER})


class Place:
    """One run as a load reaches it: who it is there, what it reads by and what it writes with."""

    def __init__(self, load: Load, found: access.Access, observer: Observer, publisher: Publisher) -> None:
        self.load, self.found, self.observer, self.publisher = load, found, observer, publisher

    def key(self, stream: str) -> str:
        return names.key(self.found.run_id, stream)

    async def said(self, stream: str) -> AsyncIterator[Opened]:
        """What is said there from now on."""
        key = self.key(stream)
        return self.observer.messages(key, await self.observer.position(key))

    async def asking(self, awaiting: Awaiting, stream: str) -> Work:
        """Commands by this run's controller, and the stream that tells what becomes of them."""
        dispatch = Dispatch(self.found.run_id, self.found.keyring, self.load.name, self.publisher.add)
        publish = partial(dispatch.send, timeout_ms=int(self.load.patience_s * 1000))
        return Asking(awaiting, publish, await self.said(stream))

    async def region(self) -> str:
        """The one that was asked for, or the first that a live worker is in."""
        beats = (await self.observer.heard(self.key("heartbeats"))).present
        known, wanted = sorted({beat.region for beat in beats.values()}), self.load.region
        if not wanted and not known:
            raise SettingError("--region", wanted, "the region of a live worker, as none has been heard of")
        if wanted and known and wanted not in known:
            raise SettingError("--region", wanted, f"one of {', '.join(known)}{near(wanted, known)}")
        return wanted or known[0]


@asynccontextmanager
async def opened(load: Load, tally: Tally) -> AsyncIterator[tuple[str, Work]]:
    """Join the run, ready to ask: its id, and the work. UnknownRunError, SettingError, BusError."""
    role = Role.WORKER if load.kind == "telemetry" else Role.CONTROLLER
    found = await access.find(load.run, load.redis_url, load.keyring, role)
    if load.rate and role not in found.keyring.roles:
        raise SettingError("keyring", f"for {', '.join(found.keyring.roles)}", f"one for {role.value}")
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(connect.reader(found.redis_url))
        writer = await stack.enter_async_context(connect.writer(found.redis_url))
        await stack.enter_async_context(found.kept_current())
        observer = await observing(await _reading(load, found), load.name, reader, writer)
        place = Place(load, found, observer, Publisher(writer))
        yield found.run_id, await _WORKS[load.kind](place, tally)


async def _reading(load: Load, found: access.Access) -> RoleKeyring:
    """Keys that open what the run says: the same, or in an embedded run those of an observer."""
    if READERS & set(found.keyring.roles):
        return found.keyring
    if load.keyring is None and load.redis_url is None:
        return (await access.find(found.run_id, role=Role.OBSERVER)).keyring
    met, roles = f"for {', '.join(found.keyring.roles)}", "--role worker --role observer"
    raise SettingError("keyring", met, f"one for worker and observer, as of `esper keys derive {roles}`")


async def _commands(place: Place, tally: Tally) -> Work:
    return await place.asking(Answered(tally), "receipts")


async def _packets(place: Place, tally: Tally) -> Work:
    region, tag = await place.region(), secrets.token_hex(2)
    sealer = Sealer(place.found.keyring, Role.WORKER, place.load.name)
    stream = names.region_key(place.found.run_id, region, "telemetry")

    async def add(sealed: Sequence[bytes]) -> None:
        await place.publisher.add_many(stream, sealed)

    return Packets(Folded(tally, tag), partial(sealer.seal, target=region), add, await place.said("global"))


async def _barriers(place: Place, tally: Tally) -> Work:
    return await place.asking(Rounds(tally), "decisions")


_WORKS = {"command": _commands, "telemetry": _packets, "barrier": _barriers}
