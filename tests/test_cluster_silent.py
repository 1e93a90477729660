"""A Cluster whose nodes stand still: whoever asks is told so, and waits for no look but one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from esper.bus import connect
from esper.bus.cluster import ClusterRedis
from esper.bus.embedded import EmbeddedRedis
from esper.bus.faults import LostError
from tests.many_servers import HOST, NUM_SLOTS, ask, free_ports, on, wait_until

NUM_AT_ONCE = 8


@pytest.fixture
def node(short_directory: Path) -> Iterator[tuple[str, EmbeddedRedis]]:
    """URL of a Cluster of one, and that one."""
    [port] = free_ports(1)
    with EmbeddedRedis(short_directory / f"alone-{port}", options={**on(port), "cluster-enabled": "yes"}) as server:
        ask(port, "CLUSTER", "ADDSLOTS", *range(NUM_SLOTS))
        wait_until(lambda: "cluster_state:ok" in str(ask(port, "CLUSTER", "INFO")), "it is whole")
        yield f"redis+cluster://{HOST}:{port}", server


async def test_those_who_ask_at_once_are_told_of_one_look(
    node: tuple[str, EmbeddedRedis], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each looked for itself, one after the other: the eighth heard after eight seconds what the first did."""
    monkeypatch.setattr(connect, "LOOK_S", 0.5)  # longer than two looks are apart
    (url, server), looks = node, list[None]()
    async with connect.client(url, 0.5) as redis:
        assert isinstance(redis, ClusterRedis)
        await connect.wait_ready(redis, 60.0)
        topology, looked = redis._topology, redis._topology.initialize

        async def looking() -> None:
            looks.append(None)
            await looked()

        monkeypatch.setattr(topology, "initialize", looking)
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
