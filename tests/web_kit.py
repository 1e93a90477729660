"""A site as a browser meets it, without a socket: requests go straight to the application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from starlette.types import ASGIApp, Message

from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.kinds import Role
from esper.web.app import Publish, Site, application
from esper.web.board import Board
from esper.web.feed import Feed
from esper.web.tokens import Token
from tests.scripted import ScriptedRun
from tests.sealed import MASTER, RUN

SECRET = "a-token-of-more-than-16"
OBSERVER: RoleKeyring = MASTER.derive(RUN, [Role.OBSERVER])


def board() -> Board:
    """Of a run that has said nothing."""
    return Board(RUN, OBSERVER)


def site(of: Board | None = None, *, token: str = "", publish: Publish | None = None) -> Site:
    shown = of or board()
    return Site(shown, Feed(shown.everything), Token(token) if token else None, publish)


@asynccontextmanager
async def browser(app: ASGIApp, host: str = "localhost:8470") -> AsyncIterator[httpx2.AsyncClient]:
    """Asks by this name."""
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        yield client


@asynccontextmanager
async def visiting(of: Site, host: str = "localhost:8470") -> AsyncIterator[httpx2.AsyncClient]:
    async with browser(application(of, ["named.example"]), host) as client:
        yield client


def events(frames: bytes) -> list[tuple[str, str, Any]]:
    """Id, name and content of each event, taken apart by the rules of text/event-stream."""
    found = []
    for block in frames.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":") and ": " in line)
        if "data" in fields:
            found.append((fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"])))
    return found


def http(path: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The scope of a GET, for an application that is called without a client."""
    given = {"host": "localhost", **(headers or {})}
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    return {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": pairs}


class Wire:
    """What an application sends, and whether the browser stays. One that `stalls` takes nothing after the head."""

    def __init__(self, *, stalls: bool = False) -> None:
        self.start: Message = {}
        self.body, self.is_over, self.spoken = b"", False, asyncio.Event()
        self._stalls = stalls

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
            return
        if self._stalls:
            await asyncio.Event().wait()
        self.body += message["body"]
        self.is_over = not message["more_body"]
        self.spoken.set()

    async def stays(self) -> Message:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def leaves(self) -> Message:
        return {"type": "http.disconnect"}


def give_observer(run: ScriptedRun) -> None:
    """Lay an observer's keyring beside the controller's, as an embedded run has it."""
    run.master.derive(run.run_id, [Role.OBSERVER]).save(run.keyring.with_name("observer.json"))
