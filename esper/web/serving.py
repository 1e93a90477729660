"""Reads along with one run, tells its browsers four times a second what has changed, and answers their requests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from esper.bus import connect
from esper.client import Controller
from esper.errors import SettingError
from esper.leyline.seal import Opened
from esper.runtime.access import Access
from esper.runtime.history import report_store
from esper.runtime.watching.live import Watch, permitted, watching
from esper.web.app import Publish, Site, application
from esper.web.board import Board
from esper.web.feed import Feed
from esper.web.publishing import publish
from esper.web.tokens import Token

TELL_EVERY_S = 0.25
ALIVE_EVERY = 60  # of these, without a change
JUDGED_WITHIN_S = 60.0
"""A command that a page sent is void later on: nobody waits for it any more."""
MOST_BROWSERS = 256
"""Connections at once; more are answered 503."""
NAME = "web"
BACKLOG = {
    "commands": 2_000,
    "optimizer": 2_000,
    "receipts": 8_000,
    "decisions": 10_000,
    "emergency": 64,
    "global": 512,
    "state": 256,
    "heartbeats": 256,
}
"""Newest entries that a page begins with: orders and answers first, which say what a seed weighs; states before
heartbeats, which go further. Older states and aggregates are read spread."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where it listens, and by which names beside localhost and addresses it answers."""

    host: str
    port: int
    names: Collection[str] = ()


class Server(uvicorn.Server):
    """Lets its browsers go before it waits for them: their streams have no end of their own."""

    def __init__(self, app: ASGIApp, feed: Feed) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=2,
                limit_concurrency=MOST_BROWSERS,
            )
        )
        self._feed = feed

    def leave(self, _: object) -> None:
        """Stop soon."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if not self._feed.ended:
            self._feed.end()
            await super().shutdown(sockets)


@asynccontextmanager
async def site_of(found: Access, token: Token | None = None) -> AsyncIterator[tuple[Site, Watch]]:
    """A run's site, which has caught up. With a token a controller publishes for it."""
    async with AsyncExitStack() as stack:
        publishes = await stack.enter_async_context(_publisher(found)) if token is not None else None
        board = Board(found.run_id, found.keyring)
        earlier = await _read_spread(found)
        watch = await stack.enter_async_context(watching(found, NAME, board, BACKLOG, board.refuse, earlier))
        board.unread = sorted(watch.unread)
        board.changes()
        yield Site(board, Feed(board.everything), token, publishes), watch


async def _read_spread(found: Access) -> dict[str, list[Opened]]:
    """States and aggregates of the whole run, as many as a plot can show."""
    async with connect.writer(found.redis_url) as redis:
        entries = {
            name: await permitted(report_store.spread(redis, found.run_id, name), [], set())
            for name in report_store.STREAMS
        }
    return {name: [*report_store.opened(those, found.keyring)] for name, those in entries.items()}


async def tell(site: Site, watch: Watch) -> None:
    """Publish what has changed, without end. A page that nothing changes on is told that all is well."""
    silent = 0
    while True:
        await asyncio.sleep(TELL_EVERY_S)
        site.board.trouble, site.board.unread = watch.trouble, sorted(watch.unread)
        silent = 0 if watch.changed.is_set() else silent + 1
        watch.changed.clear()
        if not silent and (changes := site.board.changes()):
            site.feed.publish(changes)
        elif silent and silent % ALIVE_EVERY == 0:
            site.feed.keep_alive()


async def serve(site: Site, watch: Watch, address: ListenAddress, listening: socket.socket) -> None:
    """Answer until interrupted; what goes wrong for good with the reading or the telling is raised here."""
    server = Server(application(site, address.names), site.feed)
    telling = asyncio.create_task(tell(site, watch))
    telling.add_done_callback(server.leave)
    try:
        await watch.along(server.serve([listening]))
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        if server.started:
            await server.shutdown([listening])  # cancelled, it had no chance to
    if not telling.cancelled():
        telling.result()


def bound(address: ListenAddress) -> socket.socket:
    """Listening already, so that whoever is told the address is answered. SettingError: it is taken."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
        listening.listen()
    except (OSError, TypeError) as error:  # the latter of a name that cannot be encoded
        listening.close()
        where, why = f"{address.host}:{address.port}", getattr(error, "strerror", None) or error
        raise SettingError("--host, --port", where, f"an address that is free ({why})") from error
    return listening


@asynccontextmanager
async def _publisher(found: Access) -> AsyncIterator[Publish]:
    """With keys of its own: those that the page reads by can seal nothing."""
    async with Controller.connect(found.run_id, name=NAME) as controller:

        async def published(said: object) -> dict[str, str]:
            receipt = await publish(controller.within(JUDGED_WITHIN_S), said)
            return {"command_id": receipt.command_id, "entry_id": receipt.entry_id}

        yield published
