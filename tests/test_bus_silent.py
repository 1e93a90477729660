"""A server that falls silent holds no connection of a client open, and never carries out what was given up."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from esper.bus import connect
from esper.bus.connect import writer
from esper.bus.embedded import EmbeddedRedis
from esper.bus.faults import LostError
from tests.bus_kit import sockets
from tests.faults.processes import wait_until
from tests.many_servers import HOST, SERVICE, ended, free_ports, on, started

MORE_THAN_KERNELS_HOLD = bytes(1 << 26)


@pytest.fixture(scope="module")
def ports() -> list[int]:
    return free_ports(2)


@pytest.fixture(scope="module")
def server(short_directory: Path, ports: list[int]) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(short_directory / "unheard", options=on(ports[0])) as running:
        yield running


@pytest.fixture(scope="module")
def sentinel(server: EmbeddedRedis, ports: list[int]) -> Iterator[str]:
    """URL of a Sentinel that watches the server, and chooses no other."""
    process = started(server.directory, ports[1], ports[0], None)
    with socket.socket() as probe:
        wait_until(lambda: probe.connect_ex((HOST, ports[1])) == 0, "the Sentinel listens")
    yield f"redis+sentinel://{HOST}:{ports[1]}/{SERVICE}"
    ended([process])


@pytest.fixture(params=["unix", "tcp", "sentinel"])
def url(server: EmbeddedRedis, ports: list[int], request: pytest.FixtureRequest) -> str:
    if request.param == "sentinel":
        return str(request.getfixturevalue("sentinel"))
    return server.url if request.param == "unix" else f"redis://{HOST}:{ports[0]}"


@pytest.mark.parametrize("protocol", [2, 3])
async def test_what_a_silent_server_has_not_taken_goes_with_its_connection(
    server: EmbeddedRedis, url: str, protocol: int, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "LOOK_S", 60.0)  # a Sentinel may stand still
    assert server.process is not None
    async with writer(f"{url}?protocol={protocol}") as client:
        await client.ask(("PING",))
        before = sockets()

        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(LostError):
                await client.ask(("SET", run_id, MORE_THAN_KERNELS_HOLD), 1.0)
            async with asyncio.timeout(30.0):
                while before <= sockets():  # the loop closes it as soon as it gets there
                    await asyncio.sleep(0.01)
        finally:
            os.kill(server.process.pid, signal.SIGCONT)

    async with writer(server.url) as another:
        assert await another.ask(("GET", run_id)) is None
