"""A client of a Redis Cluster: each command goes to the node that holds its key, and what was refused there goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from redis import exceptions
from redis.asyncio.cluster import RedisCluster

from esper.bus.client.packing import in_words
from esper.bus.client.server import Redis
from esper.bus.client.urls import Node
from esper.bus.faults import ElsewhereError, LostError, UnavailableError, turned_away, without_password
from esper.bus.protocol import Argument
from esper.errors import BusError

MOST_REDIRECTIONS = 5
LOOKS_APART_S = 0.2
KEYLESS = {
    "PING",
    "TIME",
    "INFO",
    "CONFIG",
    "SCAN",
    "WAIT",
    "WAITAOF",
    "COMMAND",
    "CLIENT",
    "ACL",
    "DBSIZE",
    "FLUSHALL",
}
SECOND = {"XGROUP", "XINFO", "OBJECT", "MEMORY"}
SCRIPTS = {"EVAL", "EVALSHA"}
READS = {"XREAD": 1, "XREADGROUP": 4}
"""From which word on STREAMS may stand: before it a group or a consumer may have that name."""


class ClusterRedis(Redis):
    """The same client for many nodes. The library knows which node holds which slot; the exchange is ours.

    Its own client would repeat a command whose reply is lost. Here only what a node refused, and so did not carry out,
    goes to the node that it names.
    """

    by_slot = True

    def join(self, topology: RedisCluster, client_of: Callable[[Node], Redis]) -> None:
        """Once, before anything else. `topology` need not be initialized; `client_of` makes a client of one node."""
        self._topology, self._client_of = topology, client_of
        self._clients: dict[Node, Redis] = {}
        self._moved: dict[int, Node] = {}
        self._looked_at_s: float | None = None
        self._stale, self._turn = True, asyncio.Lock()
        self._num_looks = 0
        self._failed: Exception | None = None  # of which the last look did

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run one command; the reply as the library parses it."""
        words = (*str(args[0]).split(), *in_words(args[1:]))
        reply = await self.ask(words)
        callback = self.response_callbacks.get(args[0])
        options.pop("keys", None)
        return callback(reply, **options) if callback else reply

    async def ask_all(self, commands: Sequence[Sequence[Argument]], within_s: float | None = None) -> list[Any]:
        """Run these in one round trip; all must be of one key, or of none, so that a node refuses all or none of them.

        LostError: nobody is found who holds it. Any other UnavailableError has us look anew at who holds what.
        """
        return await self._routed(commands, self._slot_of(commands), within_s) if commands else []

    async def ask_beside(self, key: str, words: Sequence[Argument]) -> Any:
        """The same of the node that holds this key, which the command need not name."""
        return (await self._routed([words], self._topology.keyslot(key)))[0]

    async def _routed(
        self, commands: Sequence[Sequence[Argument]], slot: int | None, within_s: float | None = None
    ) -> list[Any]:
        node, asking = await self._node(slot), False
        for _ in range(MOST_REDIRECTIONS):
            try:
                return await self._sent(node, commands, asking, within_s)
            except ElsewhereError as error:
                node, asking = (error.host or node[0], error.port), error.once
                if not asking and slot is not None:
                    self._moved[slot] = node
            except UnavailableError:
                self._stale = True
                raise
        self._stale = True
        raise LostError(f"{commands[0][0]!r} was sent from node to node {MOST_REDIRECTIONS} times")

    async def servers(self) -> list[Redis]:
        """A client for each primary, in a fixed order."""
        await self._look()
        return [self._client(node) for node in self._primaries()]

    async def scan_iter(self, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:  # type: ignore[override]
        """The keys of all nodes."""
        for server in await self.servers():
            async for key in server.scan_iter(*args, **options):
                yield key

    async def _hung_up(self, close_connection_pool: bool | None) -> None:
        """Close the connections to every node, all at once: one may be silent."""
        clients, self._clients, self._stale = self._clients, {}, True
        own, asked = super()._hung_up(close_connection_pool), self._topology
        # Those that were asked first are closed by it too, but after the others.
        topology = [asked.nodes_manager.aclose("startup_nodes"), asked.aclose()]
        parts = [own, *topology, *(client.aclose() for client in clients.values())]
        await asyncio.gather(*parts, return_exceptions=True)

    async def _sent(
        self, node: Node, commands: Sequence[Sequence[Argument]], asking: bool, within_s: float | None
    ) -> list[Any]:
        client = self._client(node)
        if not asking:
            return await client.ask_all(commands, within_s)
        return (await client.ask_all([words for each in commands for words in (("ASKING",), each)], within_s))[1::2]

    def _slot_of(self, commands: Sequence[Sequence[Argument]]) -> int | None:
        keys = {key for key in map(key_of, commands) if key is not None}
        if len(keys) > 1:
            raise BusError(
                f"one round trip to a Cluster names {len(keys)} keys; expected one: {sorted(map(str, keys))}"
            )
        return self._topology.keyslot(keys.pop()) if keys else None

    async def _node(self, slot: int | None) -> Node:
        """Who holds a slot, as far as is known; without one always the same primary."""
        await self._look()
        if slot is None:
            return self._primaries()[0]
        if slot in self._moved:
            return self._moved[slot]
        nodes = self._topology.nodes_manager.slots_cache.get(slot)
        if not nodes:
            self._stale = True
            raise LostError(f"Redis at {without_password(self.url)} has no node for slot {slot}")
        return nodes[0].host, int(nodes[0].port)

    async def _look(self) -> None:
        """Ask who holds what, where that is not known or something went wrong since; at most five times a second.

        Whoever waits for the look of another is told what that one is told: nodes that are silent take seconds each.
        """
        before = self._num_looks
        async with self._turn:
            if self._num_looks != before and self._failed is not None:
                raise _unknown(self._failed, self.url) from self._failed
            now_s = time.monotonic()
            is_known = self._looked_at_s is not None
            if not self._stale or (self._looked_at_s is not None and now_s - self._looked_at_s < LOOKS_APART_S):
                return
            self._failed = None
            try:
                await self._topology.aclose()
                await self._topology.initialize()
            except (exceptions.RedisClusterException, exceptions.RedisError, OSError) as error:
                self._looked_at_s, self._failed = now_s if is_known else None, error
                raise _unknown(error, self.url) from error
            finally:
                self._num_looks += 1
            self._looked_at_s, self._stale = now_s, False
            self._moved.clear()

    def _primaries(self) -> list[Node]:
        return sorted((node.host, int(node.port)) for node in self._topology.get_primaries())

    def _client(self, node: Node) -> Redis:
        client = self._clients.get(node)
        if client is None:
            client = self._clients[node] = self._client_of(node)
        return client


def key_of(words: Sequence[Argument]) -> Argument | None:
    """The first key of a command, which says where it goes; None: it has none."""
    name = str(words[0]).upper()
    if name in KEYLESS:
        return None
    if name in SCRIPTS:
        return words[3] if int(words[2]) else None
    if name in READS:
        return words[words.index("STREAMS", READS[name]) + 1]
    return words[2 if name in SECOND else 1]


def _unknown(error: Exception, url: str) -> BusError:
    """Why nobody says who holds what."""
    at, said = without_password(url), str(error)
    if "not enabled" in said or "cluster support disabled" in said:
        return BusError(f"Redis at {at} is no Cluster; expected redis:// for a server of its own")
    if isinstance(error.__cause__, (exceptions.AuthenticationError, exceptions.AuthorizationError)):
        return turned_away(at, str(error.__cause__))
    return LostError(f"Redis at {at} cannot be reached: {said}")
