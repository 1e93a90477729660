"""Why a server hangs up that can be reached: it speaks TLS, or has none, or wants to know who we are."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import SplitResult, parse_qsl, urlsplit

from esper.bus.faults import UntrustedError, hangs_up, without_password
from esper.errors import BusError

PROBE_S = 1.0
PING = b"PING\r\n"


async def diagnosed(error: BusError, url: str) -> BusError:
    """What explains the loss for good, where the server's own answer to a second look does; else the loss itself."""
    if isinstance(error, UntrustedError):
        return BusError(str(error))
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss"):
        return error
    at = without_password(url)
    if parts.scheme == "redis":
        if await shakes_hands(parts):
            return BusError(f"Redis at {at} speaks TLS; expected a URL that begins with rediss://")
        return error
    if (await answer(parts, None) or b"")[:1] in (b"+", b"-"):
        return BusError(f"Redis at {at} speaks no TLS; expected a URL that begins with redis://")
    try:
        tls = context(url)
    except OSError:  # a file that it names is away or changed by now, which the loss says
        return error
    if await shakes_hands(parts) and await answer(parts, tls) == b"":
        return BusError(hangs_up(at))
    return error


async def shakes_hands(parts: SplitResult) -> bool:
    """Whether it speaks TLS, whoever it is. Nothing is sent to it."""
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(parts.hostname, port(parts), ssl=trusting())
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True


async def answer(parts: SplitResult, tls: ssl.SSLContext | None) -> bytes | None:
    """The beginning of what it says to a PING; empty: it hung up on that; None: it was not there, or said nothing."""
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(parts.hostname, port(parts), ssl=tls)
            try:
                return await said(reader, writer)
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return None


async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """What it says to a PING; empty where it hangs up, be it with an alert of TLS."""
    try:
        writer.write(PING)
        return await reader.read(16)
    except (ssl.SSLError, ConnectionError):
        return b""


def context(url: str) -> ssl.SSLContext:
    """Showing the certificate that the URL names."""
    options, made = dict(parse_qsl(urlsplit(url).query)), trusting()
    if "ssl_certfile" in options:
        made.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password", ""))
    return made


def trusting() -> ssl.SSLContext:
    """For a look at how a server answers: it is told nothing but PING."""
    made = ssl.create_default_context()
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


def port(parts: SplitResult) -> int:
    """As the library has it."""
    return parts.port or 6379
