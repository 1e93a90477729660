"""The pages and what they ask for: routes, each with its answer."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from esper.bench import report as reports
from esper.errors import EsperError, RefusedError, SettingError
from esper.web.board import Board
from esper.web.feed import Feed
from esper.web.guards import Guarded
from esper.web.publishing import described
from esper.web.stream import EventStream
from esper.web.tokens import Token

STATIC = Path(__file__).with_name("static")
BASE = Path(reports.__file__).with_name("page.css")
"""Colours, tables and type: one look for live pages and reports."""
MOST_BODY_BYTES = 64 * 1024
Publish: TypeAlias = Callable[[object], Awaitable[dict[str, str]]]


@dataclass(frozen=True, slots=True)
class Site:
    """What the routes answer from. Without a token nothing is published, and `publish` is never called."""

    board: Board
    feed: Feed
    token: Token | None = None
    publish: Publish | None = None

    async def page(self, request: Request) -> Response:
        """The same for every path: what it shows is asked for by its script."""
        return FileResponse(STATIC / "page.html", media_type="text/html; charset=utf-8")

    async def events(self, request: Request) -> Any:
        """What changes, as it does."""
        return EventStream(self.feed, request.headers.get("last-event-id", ""))

    async def seed(self, request: Request) -> Response:
        """One seed with its history."""
        seed_id = request.query_params.get("id", "")
        found = self.board.seed(seed_id)
        return _refused(404, f"no seed is called {seed_id!r}") if found is None else JSONResponse(found)

    async def operations(self, request: Request) -> Response:
        """What may be published here."""
        return JSONResponse({"read_only": self.token is None, "operations": described()})

    async def command(self, request: Request) -> Response:
        """Publish one, with the token."""
        if self.token is None or self.publish is None:
            return _refused(403, "this page only shows: esper web was started without a token (--token-file)")
        if not self.token.allows(request.headers.get("authorization", "")):
            return _refused(
                401, "the token is missing or wrong: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"}
            )
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return _refused(415, "expected Content-Type: application/json")
        body = await _body(request)
        if body is None:
            return _refused(413, f"expected at most {MOST_BODY_BYTES} bytes")
        try:
            return JSONResponse(await self.publish(json.loads(body)), 202)
        except (SettingError, RefusedError) as error:
            return _refused(400, str(error))
        except (ValueError, RecursionError):
            return _refused(400, "expected a JSON object")
        except EsperError as error:  # Redis is away
            return _refused(503, str(error))


def application(site: Site, names: Collection[str] = ()) -> ASGIApp:
    """Everything behind the guards. `names` are those of this server, beside localhost and addresses."""
    routes = [
        *(Route(path, site.page) for path in ("/", "/timeline", "/seed")),
        Route("/events", site.events),
        Route("/api/seed", site.seed),
        Route("/api/commands", site.operations, methods=["GET"]),
        Route("/api/commands", site.command, methods=["POST"]),
        Route("/static/base.css", _base),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Guarded(Starlette(routes=routes), names)


async def _base(request: Request) -> Response:
    return FileResponse(BASE, media_type="text/css; charset=utf-8")


def _refused(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": sentence}, status, headers)


async def _body(request: Request) -> bytes | None:
    """None: there is more of it than any command has."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            return None
    return body
