"""Clients for Redis: one that waits for entries, one that writes, neither of which ever repeats a command by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit
from weakref import WeakValueDictionary

from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.driver_info import DriverInfo
from redis.exceptions import RedisError

from esper.bus.client.abort import TcpConnection, UnixConnection
from esper.bus.client.addresses import Address, address
from esper.bus.client.cluster import ClusterRedis
from esper.bus.client.credentials import OF_A_FILE, PASSWORD, PASSWORD_FILE, USERNAME
from esper.bus.client.sentinel import WatchedRedis
from esper.bus.client.server import Redis, as_it_came
from esper.bus.client.tls import TlsConnection
from esper.bus.client.urls import Node
from esper.bus.client.version import numbers, version_of
from esper.bus.faults import FailingDiskError, LostError, without_password
from esper.bus.outage import Outage
from esper.bus.passwords import Held
from esper.errors import BusError, SettingError

__all__ = ["Redis", "ServerClock", "check_server", "client", "reader", "server_ms", "wait_ready", "writer"]

CONNECT_S = 5.0
WRITE_S = 10.0
LOOK_S = 1.0
"""How long a Sentinel, or a node of a Cluster that is asked who holds what, has to answer before the next is asked."""
OLDEST_SERVER = (6, 2)
DRIVER = DriverInfo()
"""One for all connections: else each reads and parses the package's metadata, 1.1 ms."""
CONNECTIONS = {"redis": TcpConnection, "rediss": TlsConnection, "unix": UnixConnection}


def client(url: str, deadline_s: float | None) -> Redis:
    """A client with the library's retries off: with them one XADD through a paused server became two entries.

    RESP2 unless the URL says `?protocol=3`: its replies have one shape in every version of the library and the server.
    SettingError: the URL is none of those in `addresses`.
    """
    at = address(url)
    try:
        if at is None:
            bare, who = named(url)
            made: Any = Redis.from_url(bare, **options(CONNECT_S), **kept_alive(url), **who)
            made.connection_pool.connection_class = CONNECTIONS[url.partition(":")[0]]
            made.connection_pool.make_connection()  # not opened: an option that it does not know is refused here
        elif at.service:
            made = watched(at)
        else:
            made = routed(at, deadline_s)
    except (TypeError, ValueError, RedisError) as error:
        raise SettingError("ESPER_REDIS_URL", without_password(url), f"a Redis URL ({error})") from error
    made.url, made.outage, made.deadline_s, made.holders = url, Outage(), deadline_s, WeakValueDictionary()
    made._idle = []
    made.set_response_callback("XAUTOCLAIM", as_it_came)
    return cast(Redis, made)


def options(connect_s: float, answer_s: float | None = None) -> dict[str, Any]:
    """Of any connection; what a URL says goes before."""
    return {
        "decode_responses": False,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": answer_s,
        "socket_connect_timeout": connect_s,
        "health_check_interval": 0,
        "driver_info": DRIVER,
    }


def named(url: str) -> tuple[str, dict[str, Any]]:
    """The URL without the file of a user, and who reads that at each connection."""
    place, mark, query = url.partition("?")
    asked = parse_qsl(query, keep_blank_values=True)
    files = [value for name, value in asked if name == OF_A_FILE]
    if not files:
        return url, {}
    rest = urlencode([(name, value) for name, value in asked if name != OF_A_FILE], safe="/")
    return f"{place}{mark if rest else ''}{rest}", {"credential_provider": named_by(files[0])}


def user_named(url: str) -> str | None:
    """Who connects, by the URL or the file that it names; None: nobody is named."""
    provider = named(url)[1].get("credential_provider")
    return urlsplit(url).username if provider is None else provider.get_credentials()[0]


class Named(CredentialProvider):
    """Who connects: asked at each connection, by whichever client."""

    def __init__(self, path: str) -> None:
        self._held = Held(Path(path), PASSWORD_FILE)

    def get_credentials(self) -> tuple[str, str]:
        told = self._held()
        return told[USERNAME], told[PASSWORD]

    async def get_credentials_async(self) -> tuple[str, str]:
        """The same: the library's own warns at each connection."""
        return self.get_credentials()


@cache
def named_by(path: str) -> Named:
    """One for all clients of the process: those that are made while the file is away know what it said, too."""
    return Named(path)


def kept_alive(url: str) -> dict[str, Any]:
    """For whatever goes over TCP."""
    return {} if url.startswith("unix:") else {"socket_keepalive": True}


def watched(at: Address) -> WatchedRedis:
    """A client of whoever the Sentinels say is in charge."""
    given = connecting(at)
    # Sentinels have users of their own, or none.
    own = {name: given.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in given}
    tls = {name: value for name, value in given.items() if name.startswith("ssl")}
    asked = {**options(LOOK_S, LOOK_S), **own, **tls}
    return WatchedRedis.behind(at.nodes, at.service, given, asked)


def routed(at: Address, deadline_s: float | None) -> ClusterRedis:
    """A client of a Cluster, which asks these nodes first."""
    given = {name: value for name, value in connecting(at).items() if name != "db"}
    nodes = [ClusterNode(host, port) for host, port in at.nodes]
    topology: Any = RedisCluster(
        startup_nodes=nodes, require_full_coverage=False, **{**given, **options(LOOK_S, LOOK_S), "protocol": 2}
    )
    if given.get("ssl"):
        topology.connection_kwargs["connection_class"] = TlsConnection  # of nodes that are found later
        for each in topology.nodes_manager.startup_nodes.values():
            each.connection_class = TlsConnection
    bare, who = named(at.of(*at.nodes[0]))
    made = cast(ClusterRedis, ClusterRedis.from_url(bare, **options(CONNECT_S), **kept_alive(""), **who))
    made.join(topology, partial(one_of, at, deadline_s))
    return made


def one_of(at: Address, deadline_s: float | None, node: Node) -> Redis:
    """A client of one node of several."""
    return client(at.of(*node), deadline_s)


def connecting(at: Address) -> dict[str, Any]:
    """What the URL and we ask of a connection, wherever it leads."""
    bare, who = named(at.of(*at.nodes[0]))
    told: dict[str, Any] = dict(parse_url(bare))
    is_tls = told.pop("connection_class", None) is not None
    given = {**options(CONNECT_S), **kept_alive(""), **told, **({"ssl": True} if is_tls else {}), **who}
    return {name: value for name, value in given.items() if name not in ("host", "port")}


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
        except FailingDiskError:
            return  # it refuses even a PING then, and answers: whoever writes has a patience of its own
        except LostError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.05)


async def check_server(redis: Redis) -> None:
    """Refuse a server that is too old, read-only, or that may evict what was acknowledged; of several each."""
    for server in await redis.servers():
        check_facts(server, await server.info())


def check_facts(redis: Redis, facts: Mapping[str, Any]) -> None:
    """The same, of what one server said."""
    at, version = without_password(redis.url), version_of(facts)
    if numbers(version) < OLDEST_SERVER:
        raise BusError(f"Redis at {at} is version {version}; expected 6.2 or newer")
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise BusError(f"Redis at {at} has maxmemory-policy {policy}, which may evict streams; expected noeviction")
    if facts.get("role", "master") != "master":
        raise BusError(f"Redis at {at} is a read-only replica; expected the primary's URL")


async def server_ms(redis: Redis, key: str = "") -> int:
    """The server's clock, in milliseconds since the epoch; of several that of who holds the key, or any one's."""
    seconds, microseconds = await (redis.time_at(key) if key else redis.time())
    return int(seconds) * 1000 + int(microseconds) // 1000


class ServerClock:
    """The server's clock as of the last look, carried on by our monotonic one."""

    def __init__(self, key: str = "") -> None:
        """`key`: of several servers the one that holds it is looked at, whose clock numbers its entries."""
        self._key = key
        self.offset_ms: int | None = None
        self.num_looks = 0
        self._newest_ms = 0

    async def look(self, redis: Redis) -> int:
        """Read the server's clock at some time in the round trip: the middle of it, where nothing else is known.

        What is known is put right no further than that shows: where this process stood still meanwhile, by nothing.
        """
        before_ms = time.monotonic_ns() // 1_000_000
        there_ms = await server_ms(redis, self._key)
        least_ms, most_ms = there_ms - time.monotonic_ns() // 1_000_000, there_ms - before_ms
        self.num_looks += 1
        if self.offset_ms is None:
            self.offset_ms = (least_ms + most_ms) // 2
        else:
            self._newest_ms = max(self._newest_ms, self.now_ms())
            self.offset_ms = min(max(self.offset_ms, least_ms), most_ms)
        return there_ms

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the server."""
        if self.offset_ms is None:
            raise BusError("the server's clock was asked for before it was looked at")
        return self.offset_ms + time.monotonic_ns() // 1_000_000

    def has_been_at(self, at_ms: int) -> bool:
        """Whether it has shown such a time, or a later one; it may have been set back since."""
        return at_ms <= max(self._newest_ms, self.now_ms())

    def now_ns(self) -> int:
        """The same in nanoseconds, for who seals by it."""
        return self.now_ms() * 1_000_000
