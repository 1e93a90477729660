"""Which requests are answered at all, and what every answer carries."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
LOCAL = "localhost"
MISDIRECTED = 421


class Guarded:
    """Refuses requests by a name that is not this server's, and puts the same headers on every answer.

    A page of somebody else's can have its own name point here (DNS rebinding), and would then read what this server
    tells; but its browser names that name in `Host`. An address can't be made to point elsewhere.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app, self._names = app, {LOCAL, *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if not answers_to(host, self._names):
            sentence = f"this server does not answer to the name {host!r}; say it with --allow-host\n"
            await PlainTextResponse(sentence, MISDIRECTED)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


def answers_to(host: str, names: Collection[str]) -> bool:
    """Whether a Host header is one of these names, or an address; the port is free, as tunnels choose another."""
    bare = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    return bare.lower().rstrip(".") in names or is_address(bare)


def is_address(host: str) -> bool:
    """Whether this is an IP address, which no name server has a say in."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    return host == LOCAL or (is_address(host) and ipaddress.ip_address(host).is_loopback)
