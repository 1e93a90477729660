"""One connection that the library has opened: commands out, their answers back, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias
from weakref import ref

from redis.exceptions import ConnectionError as NoConnectionError, InvalidResponse, ResponseError
from redis.utils import HIREDIS_AVAILABLE

from esper.bus.client.deadline import Watch
from esper.bus.client.packing import packed
from esper.bus.faults import FAILURES
from esper.bus.protocol import Argument

HUNG_UP = "Connection closed by server."
_MORE = object()


class Direct(asyncio.Protocol):
    """Takes answers from the transport itself, two thirds of what an exchange takes through the library's stream.

    From then on nobody else may read by this connection: closed, it is the library's again.
    """

    def __init__(self, connection: Any) -> None:
        from hiredis import Reader

        errors = {"protocolError": InvalidResponse, "replyError": connection._parser.parse_error}
        # The loop knows the transport, and that us: held here, a client that nobody closes would stay open for good.
        self._held, self._transport = ref(connection), connection._writer.transport
        self._answers: Any = Reader(**errors, notEnoughData=_MORE)
        self._loop = asyncio.get_running_loop()
        self._watch = Watch(self._loop)
        self._waiter: asyncio.Future[list[Any]] | None = None
        self._replies: list[Any] = []
        self._num_awaited = 0
        self._library = self._transport.get_protocol()  # who closes the connection waits for its word
        self._transport.set_protocol(self)

    @property
    def connection(self) -> Any:
        """Whose transport this is; the pool holds it."""
        return self._held()

    def is_ready(self) -> bool:
        """Whether it is open, at the beginning of an answer, and not asked by the library to open anew."""
        connection = self.connection
        is_open = connection.is_connected and not self._transport.is_closing()
        return is_open and not (self._answers.has_data() or connection.should_reconnect())

    async def is_sound(self) -> bool:
        """The same."""
        return self.is_ready()

    async def exchange(self, commands: Sequence[Sequence[Argument]], end: float) -> list[Any]:
        """The replies to these commands, errors among them, once all are here. TimeoutError: they are late."""
        waiter = self._waiter = self._loop.create_future()
        self._replies, self._num_awaited = [], len(commands)
        try:
            if self._transport.is_closing():
                raise NoConnectionError(HUNG_UP)
            self._watch.begin(waiter, end)
            self._transport.writelines(packed(commands, self.connection))
            replies: list[Any] = await waiter
        except BaseException:  # a cancellation too: what is answered later would be taken for another's
            await self.close()
            raise
        finally:
            self._waiter = None
            self._watch.done()
        return replies

    async def close(self) -> None:
        """At once, whatever is under way."""
        await self.connection.disconnect(nowait=True)

    def data_received(self, data: bytes) -> None:
        """Part of an answer, or several."""
        self._answers.feed(data)
        waiter, replies = self._waiter, self._replies
        if waiter is None or waiter.done():
            return
        try:
            while (reply := self._answers.gets()) is not _MORE:
                replies.append(reply)
                if len(replies) == self._num_awaited:
                    waiter.set_result(replies)
                    return
        except InvalidResponse as error:
            waiter.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        """Whoever waits for an answer gets none."""
        self._watch.close()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(NoConnectionError(str(error or HUNG_UP)))
        self._library.connection_lost(error)


class Streamed:
    """The library's own way: where hiredis is missing, for RESP3, and where a pool or the URL asks for more."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def is_ready(self) -> bool:
        """The library can't tell without a wait."""
        return False

    async def is_sound(self) -> bool:
        """Whether it is open, at the beginning of an answer, and not asked by the library to open anew."""
        connection = self.connection
        try:
            return connection.is_connected and not (connection.should_reconnect() or await connection.can_read())
        except FAILURES:
            return False

    async def exchange(self, commands: Sequence[Sequence[Argument]], end: float) -> list[Any]:
        """The replies to these commands, errors among them, once all are here.

        `end` is for whoever asks: one limit is enough for the look whether it is sound and for this.
        """
        replies: list[Any] = []
        try:
            await self.connection.send_packed_command(packed(commands, self.connection))
            for _ in commands:
                replies.append(await self._reply())
        finally:
            if len(replies) < len(commands):
                await self.close()
        return replies

    async def _reply(self) -> Any:
        try:
            return await self.connection.read_response()
        except ResponseError as error:  # an answer as any other: the connection is at the beginning of the next
            return error

    async def close(self) -> None:
        """At once: a wait for its end could be cut short, and with it the way back to the pool."""
        await self.connection.disconnect(nowait=True)


Line: TypeAlias = Direct | Streamed


def line_of(connection: Any) -> Line:
    """The shortest way there is over a connection that is open. Time limits and PINGs of a URL are the library's."""
    asks_more = connection.socket_timeout is not None or connection.health_check_interval
    is_plain = HIREDIS_AVAILABLE and int(connection.protocol) == 2 and not asks_more
    return Direct(connection) if is_plain else Streamed(connection)
