"""A client of whichever server Sentinels say is in charge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool, SentinelManagedConnection
from redis.exceptions import ConnectionError as NoConnectionError, TimeoutError as NoAnswerError

from esper.bus.client.abort import AbortOnDisconnect
from esper.bus.client.server import Redis
from esper.bus.client.tls import TlsConnection
from esper.bus.client.urls import Node

CHOOSING_S = 5.0
"""How long a connection is tried for while Sentinels choose: as long as one server has to accept it."""
LOOK_AGAIN_S = 0.1


class WatchedConnection(AbortOnDisconnect, SentinelManagedConnection):
    """To whichever server is in charge. While there is none it waits: nothing was sent yet, so nothing is repeated."""

    async def connect(self) -> None:
        """Open it. The library's errors, where Sentinels take longer to choose, or know no such primary."""
        until = time.monotonic() + CHOOSING_S
        while True:
            try:
                return cast(None, await super().connect())  # type: ignore[no-untyped-call]
            except NoConnectionError as error:
                if time.monotonic() > until or not await self._is_being_chosen(error):
                    raise
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _is_being_chosen(self, error: NoConnectionError) -> bool:
        """Whether none is named yet of those that are watched, or the one that is named is just gone."""
        if not isinstance(error, MasterNotFoundError):
            return isinstance(error.__context__, ConnectionRefusedError)
        for sentinel in self.connection_pool.sentinel_manager.sentinels:
            try:
                if self.connection_pool.service_name in await sentinel.sentinel_masters():
                    return True
            except (NoConnectionError, NoAnswerError):
                continue
        return False


class WatchedTlsConnection(WatchedConnection, TlsConnection):
    """The same over TLS, as to any other server."""


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
        opened: type[WatchedConnection] = WatchedConnection
        if given.get("ssl"):
            opened = WatchedTlsConnection
            for sentinel in told.sentinels:
                sentinel.connection_pool.connection_class = TlsConnection
        pool: Any = SentinelConnectionPool(service, told, **given, connection_class=opened)  # type: ignore[no-untyped-call]
        made = cast(WatchedRedis, cls.from_pool(pool))
        made._sentinels = told
        return made

    async def _hung_up(self, close_connection_pool: bool | None) -> None:
        """Close the connections to the primary and to every Sentinel, all at once: one may be silent."""
        own = super()._hung_up(close_connection_pool)
        parts = [own, *(sentinel.aclose() for sentinel in self._sentinels.sentinels)]
        await asyncio.gather(*parts, return_exceptions=True)
