"""A runtime that ends beside a Redis that stands still: nothing goes on behind it, and no goodbye waits for another."""

from __future__ import annotations

import asyncio
import asyncio.constants
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from esper.bus.client import server as bus_server
from esper.bus.connect import writer
from esper.bus.embedded import EmbeddedRedis
from esper.runtime.beside.assembly import LOGS
from tests.beside_kit import PATIENCE_S, Run
from tests.bus_kit import own_server, standing_still
from tests.many_servers import HOST, free_ports
from tests.server_kit import newer_server
from tests.tls_kit import Authority

SOON_S = 30.0
NUM_CLIENTS = 1 + len(LOGS)
"""One writes, and one follows each log."""


async def test_no_read_goes_on_behind_its_end(short_directory: Path, run_id: str) -> None:
    """It would be told that Redis is lost as its own connection is closed, say so, and open another one."""
    with own_server(short_directory) as server, capture_logs() as events:
        steered = Run(admin := writer(server.url), server.url, run_id)
        async with admin, asyncio.timeout(PATIENCE_S), steered.runtime() as (beside, _):
            before, stopping = asyncio.all_tasks(), asyncio.Event()
            serving = asyncio.create_task(beside.serve(stopping))
            while (await admin.info("clients"))["blocked_clients"] < len(LOGS):
                assert not serving.done()

            with standing_still(server):
                stopping.set()
                await serving
                left = asyncio.all_tasks() - before

    assert left == set()
    assert [each["event"] for each in events if each["event"] == "bus.lost"] == []


async def test_its_clients_say_goodbye_at_once(
    short_directory: Path, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS each waits to be answered: one after the other they took longer than a supervisor gives it."""
    monkeypatch.setattr(bus_server, "GOODBYE_S", 600.0)
    monkeypatch.setattr(asyncio.constants, "SSL_SHUTDOWN_TIMEOUT", 600.0)
    directory = short_directory / "goodbyes"
    directory.mkdir()
    authority, (port,) = Authority(directory, "ours"), free_ports(1)
    issued = authority.issue("server", HOST)
    told = {"tls-ca-cert-file": str(authority.cert), "tls-cert-file": str(issued.cert)}
    options = {**told, "tls-key-file": str(issued.key), "tls-auth-clients": "no", "port": "0", "tls-port": str(port)}
    url = f"rediss://{HOST}:{port}/0?ssl_ca_certs={authority.cert}&socket_connect_timeout=600"

    with EmbeddedRedis(directory / "data", binary=newer_server(), options={**options, "bind": HOST}) as server:
        async with writer(server.url) as redis, asyncio.timeout(SOON_S):
            ending = asyncio.create_task(ends(Run(redis, url, run_id), begun := asyncio.Event(), go := asyncio.Event()))
            await begun.wait()
            with standing_still(server):
                go.set()
                while num_unread(port) < NUM_CLIENTS:
                    assert not ending.done()
                    await asyncio.sleep(0.01)
            await ending


async def ends(steered: Run, begun: asyncio.Event, go: asyncio.Event) -> None:
    """A runtime that has a connection of each client, and ends when told to."""
    async with steered.runtime() as (beside, _):
        for client in (beside.outbox.redis, *(inbox.reader for inbox in beside.logs.values())):
            await client.ask(("PING",))
        begun.set()
        await go.wait()


def num_unread(port: int) -> int:
    """Connections to this port in which the server has left something unread."""
    rows = [row.split() for row in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    here = f":{port:04X}"
    return sum(row[1].endswith(here) and int(row[4].partition(":")[2], 16) > 0 for row in rows)
