"""The bus on a Redis Cluster whose slots move while it is used."""

from __future__ import annotations

import asyncio
import select
import shutil
import socket
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from esper.bus import connect, durability
from esper.bus.embedded import EmbeddedRedis
from esper.bus.faults import ElsewhereError, LostError
from esper.bus.group.delivery import FIELD
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.names import key, region_key
from esper.bus.publisher import Publisher
from esper.bus.retry import add_until_answered
from esper.bus.upkeep import dead, survey
from esper.errors import BusError, RefusedError
from esper.leyline import contracts as pb
from esper.runtime.operations.health import Health
from esper.runtime.operations.vitals import Look
from esper.runtime.quitting import silence
from tests.bus_kit import bodies, drain, num_pending, standing_still
from tests.many_servers import HOST, Cluster, a_cluster, a_replica, ask, free_ports, on


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    directory = Path(tempfile.mkdtemp(prefix="esper-"))
    with a_cluster(directory, request.config.getoption("--redis-server")) as started:
        yield started
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that stands still for more than a second is not away."""
    monkeypatch.setattr(connect, "LOOK_S", 60.0)


def on_another_node(cluster: Cluster, stream: str) -> int:
    return (cluster.holder(stream) + 1) % len(cluster.ports)


async def test_a_slot_that_moves_loses_and_doubles_nothing(cluster: Cluster, run_id: str) -> None:
    stream = key(run_id, "votes")
    async with connect.reader(cluster.url) as reader, connect.writer(cluster.url) as writer:
        publisher, inbox = Publisher(writer), Inbox(reader, writer, stream, "group", "c")
        await inbox.open()
        for number in range(20):
            if number == 10:
                cluster.move(stream, on_another_node(cluster, stream))
            await publisher.add(stream, b"%d" % number)
        deliveries = await drain(inbox)
        cluster.move(stream, on_another_node(cluster, stream))
        settlement = Settlement()
        for delivery in deliveries:
            settlement.ack(delivery)
            settlement.write(key(run_id, "decisions"), delivery.body)
        await Outbox(writer).settle(settlement)  # the script is new to this node

        assert [delivery.body for delivery in deliveries] == [b"%d" % number for number in range(20)]
        assert await bodies(writer, key(run_id, "decisions")) == [b"%d" % number for number in range(20)]
        assert await num_pending(writer, stream) == 0


async def test_while_a_slot_moves_each_command_asks_where_its_key_is_by_now(cluster: Cluster, run_id: str) -> None:
    stream = key(run_id, "votes")
    async with connect.writer(cluster.url) as writer:
        await Publisher(writer).add(stream, b"before")
        to, slot = on_another_node(cluster, stream), ask(cluster.ports[0], "CLUSTER", "KEYSLOT", stream)
        cluster.move(stream, to, ends=False)

        await Publisher(writer).add(stream, b"meanwhile")
        seen = await bodies(writer, stream)
        cluster.settle(slot, to)

        assert seen == [b"before", b"meanwhile"]


async def test_several_at_once_go_where_their_slot_is_by_now(cluster: Cluster, run_id: str) -> None:
    stream = key(run_id, "votes")
    async with connect.writer(cluster.url) as writer:
        publisher, slot = Publisher(writer), ask(cluster.ports[0], "CLUSTER", "KEYSLOT", stream)
        await publisher.add(stream, b"before")
        cluster.move(stream, on_another_node(cluster, stream))
        await publisher.add_many(stream, [b"1", b"2"])
        to = on_another_node(cluster, stream)
        cluster.move(stream, to, ends=False)
        await publisher.add_many(stream, [b"3", b"4"])
        cluster.settle(slot, to)

        assert await bodies(writer, stream) == [b"before", b"1", b"2", b"3", b"4"]


async def test_a_runs_clock_is_that_of_who_holds_its_slot(cluster: Cluster) -> None:
    runs = [f"clock-{number}" for number in range(8)]  # on all of the nodes; a drawn eight is on one, one time in 2,187
    async with connect.writer(cluster.url) as writer:
        for run_id in runs:
            stream, before = key(run_id, "decisions"), num_looks(cluster)
            clock = connect.ServerClock(stream)
            await clock.look(writer)
            holder = cluster.holder(stream)
            assert num_looks(cluster) == [num + (at == holder) for at, num in enumerate(before)]

        to = on_another_node(cluster, stream)
        cluster.move(stream, to)
        await Publisher(writer).add(stream, b"shows where it is")
        before = num_looks(cluster)
        await clock.look(writer)

        assert num_looks(cluster) == [num + (at == to) for at, num in enumerate(before)]
    assert len({cluster.holder(key(run_id, "decisions")) for run_id in runs}) > 1


async def test_a_process_compares_its_clock_with_that_of_who_dates_what_it_reads(cluster: Cluster) -> None:
    streams = [key(f"run-{number}", "votes") for number in range(8)]
    async with connect.writer(cluster.url) as writer:
        for stream in streams:
            health, before = Health(), num_looks(cluster)
            health.sources[stream, "coordinator"] = bool
            await Look(writer, health).look()

            holder = cluster.holder(stream)
            assert num_looks(cluster) == [num + (at == holder) for at, num in enumerate(before)]
    assert len(set(map(cluster.holder, streams))) > 1


def num_looks(cluster: Cluster) -> list[int]:
    """How often each node was asked for the time."""
    told = [ask(port, "INFO", "commandstats") for port in cluster.ports]
    return [stats.get("cmdstat_time", {"calls": 0})["calls"] for stats in told]


async def test_a_letter_of_a_region_is_found_with_the_runs(cluster: Cluster) -> None:
    runs = [f"letters-{number}" for number in range(8)]  # of which some have run and region on different nodes
    async with connect.reader(cluster.url) as reader, connect.writer(cluster.url) as writer:
        for run_id in runs:
            stream = region_key(run_id, "r0", "telemetry")
            await Publisher(writer).add(stream, b"junk")
            [delivery] = await drain(Inbox(reader, writer, stream, "regional", "c"))
            settlement = Settlement()
            settlement.reject(delivery, RefusedError(pb.ReasonCode.REASON_POISON, "never right"))
            await Outbox(writer).settle(settlement)

            letters = [fields[b"head"] async for _, fields in dead.entries(writer, key(run_id, "dead"))]
            assert letters == [b"junk"]
            assert await num_pending(writer, stream, "regional") == 0
            assert await survey.regions_of(writer, run_id) == ["r0"]
    apart = [run for run in runs if cluster.holder(key(run, "dead")) != cluster.holder(region_key(run, "r0", "x"))]
    assert apart


async def test_every_node_is_looked_at_before_the_cluster_is_used(cluster: Cluster) -> None:
    async with connect.writer(cluster.url) as writer:
        await durability.admit(writer)
        ask(cluster.ports[2], "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        try:
            with pytest.raises(BusError, match=f"{cluster.ports[2]}.*noeviction"):
                await durability.admit(writer)
        finally:
            ask(cluster.ports[2], "CONFIG", "SET", "maxmemory-policy", "noeviction")


async def test_a_url_of_the_wrong_form_says_which_one_fits(cluster: Cluster, run_id: str) -> None:
    stream = key(run_id, "votes")
    other = cluster.ports[on_another_node(cluster, stream)]
    async with connect.writer(f"redis://{HOST}:{other}") as alone:
        with pytest.raises(ElsewhereError, match=r"expected redis\+cluster://"):
            await Publisher(alone).add(stream, b"1")


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_node_that_sends_a_command_elsewhere_keeps_its_connection(
    cluster: Cluster, run_id: str, protocol: int
) -> None:
    stream = key(run_id, "votes")
    other = cluster.ports[on_another_node(cluster, stream)]
    async with connect.writer(f"redis://{HOST}:{other}?protocol={protocol}") as node:
        before = await node.ask(("CLIENT", "ID"))
        with pytest.raises(ElsewhereError):
            await Publisher(node).add(stream, b"1")

        assert await node.ask(("CLIENT", "ID")) == before


async def test_a_cluster_that_is_away_is_lost_until_it_is_there(cluster: Cluster, run_id: str) -> None:
    async with connect.writer(cluster.url) as writer:
        await writer.execute_command("PING")
        held = cluster.holder(key(run_id, "votes"))
        cluster.servers[held].kill()
        with pytest.raises(LostError):
            await Publisher(writer).add(key(run_id, "votes"), b"1")
        cluster.servers[held].start()
        await add_until_answered(Publisher(writer).add, key(run_id, "votes"), b"1", 60.0)

        assert await bodies(writer, key(run_id, "votes")) == [b"1"]


async def test_a_node_that_says_nothing_is_passed_over(
    cluster: Cluster, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "LOOK_S", 0.5)
    with socket.create_server((HOST, 0)) as silent:
        url = f"redis+cluster://{HOST}:{silent.getsockname()[1]},{HOST}:{cluster.ports[0]}"
        async with asyncio.timeout(40.0):
            while not select.select([silent], [], [], 0)[0]:  # the library draws whom it asks first
                async with connect.writer(url) as writer:
                    await add_until_answered(Publisher(writer).add, key(run_id, "votes"), b"1", 40.0)

    async with connect.writer(cluster.url) as writer:
        assert set(await bodies(writer, key(run_id, "votes"))) == {b"1"}


async def test_only_whoever_is_stopped_beside_a_silent_node_of_its_own_leaves_its_work(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("esper.runtime.quitting.ANSWER_S", 2.0)
    streams = [next(name for name in map(str, count()) if cluster.holder(name) == at) for at in range(3)]
    async with connect.writer(cluster.url) as writer:
        await writer.execute_command("PING")
        found = []
        for server in cluster.servers:
            with standing_still(server):
                found.append([bool(await silence(writer, [stream])) for stream in streams])

    assert found == [[True, False, False], [False, True, False], [False, False, True]]


async def test_a_server_of_its_own_is_no_cluster(short_directory: Path) -> None:
    [port] = free_ports(1)
    with EmbeddedRedis(short_directory / "alone", options=on(port)):
        async with connect.writer(f"redis+cluster://{HOST}:{port}") as writer:
            with pytest.raises(BusError, match="is no Cluster; expected redis://"):
                await connect.wait_ready(writer)


async def test_a_replica_that_takes_over_is_found(cluster: Cluster, run_id: str, short_directory: Path) -> None:
    stream = key(run_id, "votes")
    held = cluster.holder(stream)
    async with connect.reader(cluster.url) as reader, connect.writer(cluster.url) as writer:
        publisher, inbox = Publisher(writer), Inbox(reader, writer, stream, "group", "c")
        await inbox.open()
        with a_replica(cluster, held, short_directory / "fourth"):
            _, reached = await writer.ask_all([("XADD", stream, "*", FIELD, b"before"), ("WAIT", "1", "9000")])
            cluster.servers[held].kill()
            await add_until_answered(publisher.add, stream, b"after", 60.0)
            deliveries = await drain(inbox)
            cluster.servers[held].start()  # and follows, until the fourth is gone

        assert reached == 1
        assert [delivery.body for delivery in deliveries] == [b"before", b"after"]
