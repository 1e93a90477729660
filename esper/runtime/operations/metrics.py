"""/metrics for Prometheus, /healthz and /readyz for a supervisor: a small server in a process that is told a port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from esper.errors import SettingError
from esper.runtime.operations.findings import Finding, worst
from esper.runtime.operations.health import Health
from esper.runtime.settings import Settings

LONGEST_REQUEST_BYTES = 8192
REQUEST_S = 5.0
JSON = "application/json"


def respond(path: str, registry: CollectorRegistry, health: Health) -> tuple[str, str, bytes]:
    """Status line, content type and body for a path."""
    match path:
        case "/metrics":
            return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)
        case "/healthz":
            return told(health, health.live())
        case "/readyz":
            return told(health, health.ready())
        case _:
            return "404 Not Found", "text/plain; charset=utf-8", b"only /metrics, /healthz and /readyz are here\n"


def told(health: Health, findings: Sequence[Finding]) -> tuple[str, str, bytes]:
    """200 unless something fails; the body says which, and what to do."""
    status = worst(findings)
    content = {"status": status, **health.identity, "checks": [finding.row() for finding in findings]}
    line = "503 Service Unavailable" if status == "fail" else "200 OK"
    return line, JSON, (json.dumps(content) + "\n").encode()


@asynccontextmanager
async def endpoint(settings: Settings, registry: CollectorRegistry, health: Health) -> AsyncIterator[int]:
    """Serve these paths while the block runs; yields the port. Nothing listens where the setting is 0."""
    if settings.metrics_port == 0:
        yield 0
        return
    async with await listen(settings.metrics_host, settings.metrics_port, registry, health) as server:
        yield server.sockets[0].getsockname()[1]


async def listen(
    host: str, port: int, registry: CollectorRegistry, health: Health, given_as: str = "ESPER_METRICS_PORT"
) -> asyncio.Server:
    """Bind and answer; port 0 takes a free one. `given_as` says where the address comes from that can't be had."""

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                await exchange(reader, writer, registry, health)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # a client's fault, and its loss
        finally:
            writer.close()

    try:
        return await asyncio.start_server(on_connection, host, port, limit=LONGEST_REQUEST_BYTES)
    except OSError as error:
        raise SettingError(given_as, f"{host}:{port}", f"an address that is free ({error.strerror})") from error


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, registry: CollectorRegistry, health: Health
) -> None:
    """One request, one answer, and the connection ends."""
    request = await reader.readuntil(b"\r\n\r\n")
    parts = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    path = parts[1].partition("?")[0] if len(parts) > 1 else ""
    status, content_type, body = respond(path, registry, health)
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
