"""Server-sent events: the answer that goes on until the browser leaves, or can't keep up."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import Receive, Scope, Send

from esper.runtime.ending import first_of
from esper.web.feed import Feed, Subscriber

SEND_S = 10.0
"""For a browser to take one frame; then it is let go, and comes back for everything anew."""
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")],
}
RETRY = b"retry: 1000\n\n"


class EventStream:
    """One browser's events, as an ASGI application."""

    def __init__(self, feed: Feed, last_event_id: str, send_s: float = SEND_S) -> None:
        self._feed, self._last_event_id, self._send_s = feed, last_event_id, send_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        subscriber = self._feed.subscribe(self._last_event_id)
        try:
            await first_of(self._pour(subscriber, send), _hung_up(receive))
        finally:
            self._feed.leave(subscriber)

    async def _pour(self, subscriber: Subscriber, send: Send) -> None:
        await send(START)
        with suppress(TimeoutError):  # its connection is as stuck as it is: nothing more can be said to it
            await self._say(send, RETRY)
            async for frame in subscriber.frames():
                await self._say(send, frame)
            await self._say(send, b"", more=False)

    async def _say(self, send: Send, body: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(self._send_s):
            await send({"type": "http.response.body", "body": body, "more_body": more})


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
