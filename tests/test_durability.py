"""What a server keeps of what it acknowledges is stated by name, and waited for where that is wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
import structlog

from esper.bus import connect
from esper.bus.connect import Redis
from esper.bus.durability import (
    FIRST_WITH_WAITAOF,
    Confirm,
    Durability,
    DurabilityError,
    DurablePublisher,
    Facts,
    UnconfirmedError,
    admit,
    announce,
    ask,
    facts_of,
    judge,
    tried,
)
from esper.bus.faults import NoReplicasError
from esper.bus.publisher import Publisher
from esper.errors import BusError
from tests.bus_kit import bodies
from tests.faults.server import Server, replicated

EVERYSEC = Facts((7, 0), aof=True, fsync="everysec", fsync_on_rewrite=True, snapshots=False, replicas=0, min_replicas=0)
ALWAYS = replace(EVERYSEC, fsync="always")


@pytest.fixture
def place(short_directory: Path) -> Path:
    return short_directory / uuid4().hex[:8]


@pytest.fixture
def pair(place: Path) -> Iterator[tuple[Server, Server]]:
    """A primary that refuses writes without a replica, and that replica, in step."""
    with replicated(place) as servers:
        yield servers


@asynccontextmanager
async def writer_of(server: Server) -> AsyncIterator[Redis]:
    async with connect.writer(server.url) as redis:
        yield redis


@pytest.mark.parametrize(
    ("facts", "durable", "confirm", "said"),
    [
        (ALWAYS, True, (), "once it is on disk (appendfsync always)"),
        (replace(ALWAYS, fsync_on_rewrite=False), False, (), "during a rewrite of its log"),
        (replace(ALWAYS, aof=False), False, (), "loses every entry when it stops"),
        (EVERYSEC, False, (), "the last 2 s of acknowledged entries"),
        (replace(EVERYSEC, version=(7, 2)), True, ("WAITAOF", 1, 0), "WAITAOF"),
        (replace(EVERYSEC, fsync="no", version=(7, 2)), False, (), "without bound"),
        (replace(EVERYSEC, fsync=None, fsync_on_rewrite=None), False, (), "is unknown"),
        (replace(EVERYSEC, aof=False, snapshots=True), False, (), "since its last RDB snapshot"),
        (replace(EVERYSEC, aof=False, snapshots=None), False, (), "is unknown"),
        (replace(EVERYSEC, replicas=2, min_replicas=1), True, ("WAIT", 2), "on all of 2 replicas"),
        (replace(ALWAYS, replicas=1, min_replicas=1), True, ("WAIT", 1), "this server's disk and all of 1 replicas"),
        (replace(EVERYSEC, replicas=2, min_replicas=0), False, (), "the last 2 s"),
        (replace(EVERYSEC, replicas=1, min_replicas=2), False, (), "the last 2 s"),
    ],
)
def test_the_mode_follows_from_the_settings(facts: Facts, durable: bool, confirm: Confirm, said: str) -> None:
    durability = judge(facts)

    assert (durability.durable, durability.confirm) == (durable, confirm)
    assert said in durability.sentence


@pytest.mark.parametrize(
    ("confirm", "reached", "confirmed"),
    [
        (("WAIT", 2), 2, True),
        (("WAIT", 2), 1, False),
        (("WAITAOF", 1, 0), [1, 0], True),
        (("WAITAOF", 1, 0), [0, 0], False),
        (("WAITAOF", 1, 1), [1, 0], False),
    ],
)
def test_a_write_is_confirmed_when_all_have_it(confirm: Confirm, reached: int | list[int], confirmed: bool) -> None:
    assert Durability(True, "", confirm).confirmed(reached) is confirmed


def test_a_server_that_hides_its_settings_still_shows_that_it_asks_for_replicas() -> None:
    told = {"redis_version": "6.2.14", "aof_enabled": 1, "connected_slaves": 1}

    assert facts_of(told, {}).min_replicas == 0
    assert facts_of({**told, "min_slaves_good_slaves": 1}, {}).min_replicas == 1


@pytest.mark.parametrize(
    ("orders", "durable", "said"),
    [
        ([("CONFIG", "SET", "appendfsync", "always")], True, "appendfsync always"),
        ([("CONFIG", "SET", "appendfsync", "everysec")], False, "last 2 s"),
        ([("CONFIG", "SET", "appendfsync", "no")], False, "without bound"),
        ([("CONFIG", "SET", "appendonly", "no")], False, "loses every entry"),
        (
            [("CONFIG", "SET", "appendonly", "no"), ("CONFIG", "SET", "save", "3600 1")],
            *(False, "since its last RDB snapshot"),
        ),
        ([("ACL", "SETUSER", "default", "-config")], False, "does not tell its settings"),
    ],
)
async def test_a_real_server_is_asked(place: Path, orders: list[tuple[str, ...]], durable: bool, said: str) -> None:
    with Server(place) as server:
        for order in orders:
            server.ask(*order)
        async with writer_of(server) as redis:
            durability = await ask(redis)

    assert durability.durable is durable
    assert said in durability.sentence


async def test_a_server_that_claims_to_wait_for_its_disk_and_can_not_is_not_believed(redis: Redis, run_id: str) -> None:
    """As those that are like Redis and bear its version. The one of this test is older than the command."""
    if facts_of(await redis.info(), {}).version >= FIRST_WITH_WAITAOF:
        pytest.skip("this server knows WAITAOF")
    claims = replace(EVERYSEC, version=FIRST_WITH_WAITAOF)
    promised = judge(claims)

    durability = await tried(redis, claims)

    assert (durability.durable, durability.confirm) == (False, ())
    assert "last 2 s" in durability.sentence
    with pytest.raises(BusError, match="unknown command"):  # as it would have been at each publish
        await DurablePublisher(redis, promised).add(f"{run_id}:stream", b"sealed")


@pytest.mark.parametrize("protocol", [2, 3])
async def test_its_settings_are_read_by_either_protocol(redis_url: str, protocol: int) -> None:
    async with connect.writer(f"{redis_url.partition('?')[0]}?protocol={protocol}") as redis:
        durability = await ask(redis)

    assert "last 2 s" in durability.sentence


async def test_durable_mode_refuses_a_server_that_cannot_give_it(redis: Redis) -> None:
    await admit(redis)

    with pytest.raises(DurabilityError, match=r"may lose the last 2 s.*expected appendfsync always"):
        await admit(redis, "durable")


async def test_the_mode_is_said_in_one_line(redis: Redis) -> None:
    with structlog.testing.capture_logs() as lines:
        await announce(redis)

    assert [line["event"] for line in lines] == ["durability.stated"]
    assert lines[0]["mode"] == "fast"
    assert "may lose the last 2 s of acknowledged entries" in lines[0]["redis"]


async def test_a_confirmed_publish_is_on_the_replica(pair: tuple[Server, Server]) -> None:
    primary, replica = pair
    async with writer_of(primary) as redis, AsyncExitStack() as stack:
        durability = await admit(redis, "durable")
        publisher = DurablePublisher(redis, durability)

        await publisher.add("stream", b"m")

        primary.kill()
        of_replica = await stack.enter_async_context(writer_of(replica))
        assert durability.confirm == ("WAIT", 1)
        assert await bodies(of_replica, "stream") == [b"m"]


async def test_a_publish_that_no_replica_confirms_raises(pair: tuple[Server, Server]) -> None:
    primary, replica = pair
    async with writer_of(primary) as redis:
        publisher = DurablePublisher(redis, await admit(redis, "durable"), confirm_ms=50)
        replica.pause()

        with pytest.raises(UnconfirmedError, match="WAIT 1 reached 0"):
            await publisher.add("stream", b"m")

        assert await bodies(redis, "stream") == [b"m"]


async def test_a_server_without_the_replicas_that_it_asks_for_may_be_tried_again(place: Path) -> None:
    with Server(place, options={"min-replicas-to-write": "1"}) as server:
        async with writer_of(server) as redis:
            with pytest.raises(NoReplicasError, match="fewer good replicas"):
                await Publisher(redis).add("stream", b"m")
            with pytest.raises(NoReplicasError):
                await redis.execute_command("EVAL", "return redis.call('XADD', KEYS[1], '*', 'm', 'm')", 1, "stream")
