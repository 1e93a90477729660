"""Connections that keep no socket open once they are closed, whatever their server has not taken or answered."""

from __future__ import annotations

from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, UnixDomainSocketConnection


class AbortOnDisconnect(AbstractConnection):
    """Goes before a class of the library, whose way to close leaves it to the loop to send what is left.

    The loop would hold on to the socket until a silent server takes that, and the server would carry it out then.
    """

    async def disconnect(self, *args: Any, **kwargs: Any) -> None:
        """As the library does; what is unsent or unanswered then is dropped."""
        writer = self._writer
        try:
            await super().disconnect(*args, **kwargs)
        finally:
            if writer is not None:
                writer.transport.abort()


class TcpConnection(AbortOnDisconnect, Connection):
    """To an address in the clear."""


class UnixConnection(AbortOnDisconnect, UnixDomainSocketConnection):
    """To a socket of this machine."""
