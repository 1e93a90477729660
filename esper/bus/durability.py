"""How much of what Redis acknowledges survives a crash: asked of the server, stated by name, waited for if wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import structlog

from esper.bus.client.version import numbers, version_of
from esper.bus.connect import Redis, check_server
from esper.bus.faults import LostError, UnavailableError, without_password
from esper.bus.group.delivery import FIELD
from esper.bus.protocol import pairs_of
from esper.bus.publisher import Publisher
from esper.errors import BusError, SettingError

Wanted: TypeAlias = Literal["fast", "durable"]
Confirm: TypeAlias = tuple[str | int, ...]

CONFIRM_MS = 5_000
"""Less than a writer waits for any answer."""
EVERYSEC_WINDOW_S = 2.0
"""Redis puts a write off for up to two seconds while an earlier fsync is still under way."""
FIRST_WITH_WAITAOF = (7, 2)
SETTINGS = ("appendfsync", "no-appendfsync-on-rewrite", "save", "min-replicas-to-write")

log = structlog.get_logger()


class DurabilityError(BusError):
    """Durable mode is asked for, and the server as it is set up cannot give it."""

    def __init__(self, at: str, sentence: str) -> None:
        self.at, self.sentence = at, sentence
        super().__init__(
            f"ESPER_DURABILITY is 'durable', and Redis at {at} {sentence}; expected appendfsync always, "
            "or min-replicas-to-write with as many replicas connected"
        )


class UnconfirmedError(LostError):
    """The server has the entry and did not say in time that it is safe. To be treated as a lost reply."""

    def __init__(self, stream: str, entry_id: str, confirm: Confirm, reached: Any) -> None:
        self.stream, self.entry_id, self.confirm, self.reached = stream, entry_id, confirm, reached
        super().__init__(
            f"entry {entry_id} of {stream} was not safe in time: {' '.join(map(str, confirm))} reached {reached}"
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """What INFO and CONFIG say. None: the server does not tell."""

    version: tuple[int, ...]
    aof: bool
    fsync: str | None
    fsync_on_rewrite: bool | None
    snapshots: bool | None
    replicas: int
    min_replicas: int


@dataclass(frozen=True, slots=True)
class Durability:
    """What an acknowledgement is worth. `confirm`: the command to follow a write where its reply says too little."""

    durable: bool
    sentence: str
    confirm: Confirm = ()
    window_s: float | None = None  # how much of the newest may be lost; None: no bound, or not known

    def confirmed(self, reached: Any) -> bool:
        """Whether the reply to `confirm` says that the writes before it are safe."""
        counts = reached if isinstance(reached, list) else [reached]
        return all(int(count) >= int(wanted) for count, wanted in zip(counts, self.confirm[1:], strict=False))


def facts_of(info: Mapping[str, Any], config: Mapping[str, str]) -> Facts:
    """Read the answers of a server; settings that it refused to tell are missing from `config`."""
    on_rewrite, save = config.get("no-appendfsync-on-rewrite"), config.get("save")
    # A server that hides its settings still counts its good replicas where it asks for any.
    hidden = 1 if "min_slaves_good_slaves" in info else 0
    return Facts(
        version=numbers(version_of(info)),
        aof=bool(int(info.get("aof_enabled", 0))),
        fsync=config.get("appendfsync"),
        fsync_on_rewrite=None if on_rewrite is None else on_rewrite == "no",
        snapshots=None if save is None else bool(save),
        replicas=int(info.get("connected_slaves", 0)),
        min_replicas=int(config.get("min-replicas-to-write", hidden)),
    )


def judge(facts: Facts) -> Durability:
    """The mode that a server is in, from the strongest promise down."""
    on_disk = facts.aof and facts.fsync == "always" and facts.fsync_on_rewrite is True
    if 0 < facts.min_replicas <= facts.replicas:
        kept = "this server's disk and " if on_disk else ""
        said = f"acknowledges a publish once it is on {kept}all of {facts.replicas} replicas"
        return Durability(True, said, ("WAIT", facts.replicas))
    if on_disk:
        return Durability(True, "acknowledges a publish once it is on disk (appendfsync always)")
    if facts.aof and facts.fsync != "no" and facts.version >= FIRST_WITH_WAITAOF:
        return Durability(True, "acknowledges a publish once it is on disk (WAITAOF)", ("WAITAOF", 1, 0))
    return weaker(facts)


def weaker(facts: Facts) -> Durability:
    """What may be lost in a crash of the machine, where acknowledged entries may be."""
    if not facts.aof:
        return Durability(False, without_log(facts))
    match facts.fsync:
        case "everysec":
            said = f"may lose the last {EVERYSEC_WINDOW_S:.0f} s of acknowledged entries (appendfsync everysec)"
            return Durability(False, said, window_s=EVERYSEC_WINDOW_S)
        case "always":
            said = (
                "may lose what it acknowledges during a rewrite of its log (no-appendfsync-on-rewrite yes, or unknown)"
            )
        case "no":
            said = "may lose acknowledged entries without bound: the kernel decides what is on disk (appendfsync no)"
        case _:
            said = "does not tell its settings: how many acknowledged entries it may lose is unknown"
    return Durability(False, said)


def without_log(facts: Facts) -> str:
    """Also a mere kill of the server loses these."""
    if facts.snapshots is None:
        return "keeps no append-only file, and does not tell when it takes snapshots: what it may lose is unknown"
    if facts.snapshots:
        return "may lose all acknowledged entries since its last RDB snapshot (no append-only file)"
    return "loses every entry when it stops (no append-only file, no snapshots)"


async def ask(redis: Redis) -> Durability:
    """The mode that the server is in now; of several servers the weakest."""
    modes = [await ask_one(server) for server in await redis.servers()]
    return min(modes, key=lambda mode: (mode.durable, -len(mode.confirm), mode.confirm[1:]))


async def ask_one(redis: Redis) -> Durability:
    """The mode of one server."""
    config: dict[str, str] = {}
    for setting in SETTINGS:
        try:
            found = pairs_of(await redis.execute_command("CONFIG", "GET", setting))
        except UnavailableError:
            raise
        except BusError:  # an ACL, or a managed server, keeps its settings to itself
            break
        config |= {name.decode(): value.decode() for name, value in found.items()}
    return await tried(redis, facts_of(cast(Mapping[str, Any], await redis.info()), config))


async def tried(redis: Redis, facts: Facts) -> Durability:
    """The mode that these facts come to, where the server knows the command that it takes: a version is a claim."""
    durability = judge(facts)
    if durability.confirm[:1] != ("WAITAOF",):
        return durability
    try:
        await redis.execute_command("WAITAOF", 0, 0, 0)  # waits for nothing
    except UnavailableError:
        raise
    except BusError:  # one that is like Redis, or lets this user not wait
        return weaker(facts)
    return durability


def chosen(value: str) -> Wanted:
    """The mode of this name; empty: fast."""
    match value:
        case "" | "fast":
            return "fast"
        case "durable":
            return "durable"
    raise SettingError("ESPER_DURABILITY", value, "fast or durable")


async def admit(redis: Redis, wanted: Wanted = "fast") -> Durability:
    """Refuse a server that is unfit, or not durable where that is wanted."""
    await check_server(redis)
    durability = await ask(redis)
    if wanted == "durable" and not durability.durable:
        raise DurabilityError(without_password(redis.url), durability.sentence)
    return durability


async def announce(redis: Redis, wanted: Wanted = "fast") -> Durability:
    """The same, and say in one line which mode this process is in: at the start of each."""
    durability = await admit(redis, wanted)
    at = without_password(redis.url)
    log.info("durability.stated", mode=wanted, redis=f"Redis at {at} {stated(durability, wanted)}")
    return durability


def publisher(redis: Redis, durability: Durability, wanted: Wanted) -> Publisher | DurablePublisher:
    """One that waits for what the mode wants to wait for."""
    if wanted == "durable" and durability.confirm:
        return DurablePublisher(redis, durability)
    return Publisher(redis)


def stated(durability: Durability, wanted: Wanted) -> str:
    """The sentence for a process: in fast mode nothing is waited for, whatever the server could confirm."""
    if wanted == "fast" and durability.confirm:
        return f"could be waited for until it {durability.sentence}; fast mode does not"
    return durability.sentence


class DurablePublisher:
    """Adds one sealed message to a stream, once, and returns only when the server says that it is safe."""

    def __init__(self, redis: Redis, durability: Durability, confirm_ms: int = CONFIRM_MS) -> None:
        self.redis, self.durability, self.confirm_ms = redis, durability, confirm_ms

    async def add(self, stream_key: str, sealed: bytes) -> str:
        """Id of the entry. UnconfirmedError and LostError: it may be there; the same bytes may be added again."""
        who = f"writer of {stream_key}"
        try:
            entry_id, reached = await self._both(stream_key, sealed)
            if not self.durability.confirmed(reached):
                raise UnconfirmedError(stream_key, entry_id, self.durability.confirm, reached)
        except UnavailableError as error:
            self.redis.outage.begins(who, error)
            raise
        self.redis.outage.ends(who)
        return entry_id

    async def _both(self, stream_key: str, sealed: bytes) -> tuple[str, Any]:
        """On one connection: WAIT speaks of the writes of its own connection only."""
        confirm = (*map(str, self.durability.confirm), str(self.confirm_ms))
        entry_id, reached = await self.redis.ask_all([("XADD", stream_key, "*", FIELD, sealed), confirm])
        return entry_id.decode(), reached
