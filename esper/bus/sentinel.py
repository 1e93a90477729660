"""A client of whichever server Sentinels say is in charge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedConnection

from esper.bus.addresses import Node
from esper.bus.server import Redis
from esper.bus.tls import TlsConnection


class WatchedTlsConnection(SentinelManagedConnection, TlsConnection):
    """To whichever server is in charge, over TLS as to any other."""


class WatchedRedis(Redis):
    """The same client. Each new connection asks the Sentinels; one to a server that is in charge no more is dropped."""

    holds_on = False  # the pool closes those that it holds when the Sentinels name another server
    _sentinels: Any

    @classmethod
    def behind(
        cls, sentinels: Sequence[Node], service: str, given: Mapping[str, Any], asked: Mapping[str, Any]
    ) -> WatchedRedis:
        """`given` is for connections to the primary, `asked` for those to Sentinels."""
        told: Any = Sentinel(sentinels, sentinel_kwargs=dict(asked))  # type: ignore[no-untyped-call]
        over: dict[str, Any] = {}
        if given.get("ssl"):
            over = {"connection_class": WatchedTlsConnection}
            for sentinel in told.sentinels:
                sentinel.connection_pool.connection_class = TlsConnection
        pool: Any = SentinelConnectionPool(service, told, **given, **over)  # type: ignore[no-untyped-call]
        made = cast(WatchedRedis, cls.from_pool(pool))
        made._sentinels = told
        return made

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close the connections to the primary and to every Sentinel."""
        for sentinel in self._sentinels.sentinels:
            await sentinel.aclose()
        await super().aclose(close_connection_pool)
