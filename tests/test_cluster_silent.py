"""A Cluster that is away: whoever asks is told so, waits for no look but one, and is served once it is back."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from esper.bus import connect
from esper.bus.client.cluster import ClusterRedis
from esper.bus.embedded import EmbeddedRedis, asked
from esper.bus.faults import LostError
from tests.faults.processes import wait_until
from tests.many_servers import HOST, NUM_SLOTS, ask, free_ports, on

NUM_AT_ONCE = 8


@pytest.fixture(scope="module")
def node(short_directory: Path) -> Iterator[tuple[str, EmbeddedRedis]]:
    """URL of a Cluster of one, and that one."""
    [port] = free_ports(1)
    with EmbeddedRedis(short_directory / f"alone-{port}", options={**on(port), "cluster-enabled": "yes"}) as server:
        ask(port, "CLUSTER", "ADDSLOTS", *range(NUM_SLOTS))
        wait_until(lambda: "cluster_state:ok" in str(ask(port, "CLUSTER", "INFO")), "it is whole")
        yield f"redis+cluster://{HOST}:{port}", server


def counted(redis: ClusterRedis, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each look from now on."""
    looks, looked = list[None](), redis._topology.initialize

    async def looking() -> None:
        looks.append(None)
        await looked()

    monkeypatch.setattr(redis._topology, "initialize", looking)
    return looks


async def test_those_who_ask_at_once_are_told_of_one_look(
    node: tuple[str, EmbeddedRedis], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each looked for itself, one after the other: the eighth heard after eight seconds what the first did."""
    monkeypatch.setattr(connect, "LOOK_S", 0.5)  # longer than two looks are apart
    url, server = node
    async with connect.client(url, 0.5) as redis:
        assert isinstance(redis, ClusterRedis)
        await connect.wait_ready(redis, 60.0)
        looks = counted(redis, monkeypatch)
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(LostError):
                await redis.ask(("GET", "key"))

            met = await asyncio.gather(*(redis.ask(("GET", "key")) for _ in range(NUM_AT_ONCE)), return_exceptions=True)
            num_looks = len(looks)
        finally:
            server.process.send_signal(signal.SIGCONT)

    assert (num_looks, {type(each) for each in met}) == (1, {LostError})


async def test_those_who_ask_at_once_are_served_when_it_is_back(
    node: tuple[str, EmbeddedRedis], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of them looks: nobody is told of the look that failed while it was away."""
    monkeypatch.setattr(connect, "LOOK_S", 60.0)  # it may stand still
    url, server = node
    async with connect.client(url, 60.0) as redis:
        assert isinstance(redis, ClusterRedis)
        await connect.wait_ready(redis, 60.0)
        looks = counted(redis, monkeypatch)
        server.stop()
        while not looks:
            with pytest.raises(LostError):
                await redis.ask(("GET", "key"))
        server.start()
        wait_until(lambda: b"cluster_state:ok" in asked(server.socket, b"CLUSTER INFO"), "it is whole again")

        met = await asyncio.gather(*(redis.ask(("GET", "key")) for _ in range(NUM_AT_ONCE)), return_exceptions=True)

    assert met == [None] * NUM_AT_ONCE
