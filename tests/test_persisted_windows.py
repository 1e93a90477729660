"""A consumer's windows follow a Redis that fell back, and are written anew to one that lost everything."""

from __future__ import annotations

import pytest
import structlog

from esper.bus.connect import Redis
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.names import key
from esper.errors import RefusedError, StaleLeaseError
from esper.leyline.replay import ReplayGuard
from esper.runtime.serving.missing import Missing
from esper.runtime.serving.windows import Found, ReplacedError, UnreadableError, Windows
from tests.sealed import NOW_MS, command, controller, worker_opener


class Consumer:
    """Opens sealed commands as entries of its choice, and settles each by itself."""

    def __init__(self, redis: Redis, run_id: str) -> None:
        self.guard = ReplayGuard()
        self.opener = worker_opener(guard=self.guard)
        self.windows = Windows(key(run_id, "windows"), Outbox(redis), {"commands": self.guard}, Missing())

    async def take(self, sealed: bytes, entry: int) -> bool:
        """Whether it had taken effect before, as this very entry."""
        opened = self.opener.open(sealed, f"{NOW_MS}-{entry}", NOW_MS)
        self.windows.missing.note(opened.header)
        await self.windows.settle(Settlement())
        return opened.redelivered

    async def insist(self, sealed: bytes, entry: int) -> Found:
        """The same for an effect outside Redis: what Redis still held."""
        self.opener.open(sealed, f"{NOW_MS}-{entry}", NOW_MS)
        return await self.windows.insist(Settlement())


@pytest.fixture
def sealed() -> list[bytes]:
    sealer = controller()
    return [sealer.seal(command(f"c{number}")) for number in range(6)]


@pytest.fixture
async def consumer(redis: Redis, run_id: str) -> Consumer:
    consumer = Consumer(redis, run_id)
    await consumer.windows.load()
    return consumer


async def test_what_fell_back_with_redis_may_take_effect_again(
    redis: Redis, run_id: str, consumer: Consumer, sealed: list[bytes]
) -> None:
    await consumer.take(sealed[0], 1)
    stored = await redis.execute_command("DUMP", consumer.windows.hash_key)
    await consumer.take(sealed[1], 2)

    await redis.execute_command("RESTORE", consumer.windows.hash_key, 0, stored, "REPLACE")
    with pytest.raises(StaleLeaseError):
        await consumer.take(sealed[2], 3)

    assert await consumer.take(sealed[0], 1)
    assert not await consumer.take(sealed[1], 12)  # the first copy of it is gone, with its effect


async def test_what_was_seen_before_everything_was_lost_is_still_refused(
    redis: Redis, run_id: str, consumer: Consumer, sealed: list[bytes]
) -> None:
    for entry in (1, 2):
        await consumer.take(sealed[entry - 1], entry)

    await redis.delete(consumer.windows.hash_key)
    with pytest.raises(StaleLeaseError):
        await consumer.take(sealed[2], 3)

    assert not await consumer.take(sealed[2], 4)  # it had not been settled
    with pytest.raises(RefusedError, match="was met as entry"):
        await consumer.take(sealed[0], 5)
    anew = Consumer(redis, run_id)
    await anew.windows.load()
    with pytest.raises(RefusedError, match="was met as entry"):
        await anew.take(sealed[1], 6)


async def test_a_gap_is_told_once_and_only_when_it_is_settled(
    redis: Redis, consumer: Consumer, sealed: list[bytes]
) -> None:
    await consumer.take(sealed[0], 1)
    stored = await redis.execute_command("DUMP", consumer.windows.hash_key)
    await consumer.take(sealed[1], 2)
    await redis.execute_command("RESTORE", consumer.windows.hash_key, 0, stored, "REPLACE")

    with structlog.testing.capture_logs() as refused, pytest.raises(StaleLeaseError):
        await consumer.take(sealed[4], 5)
    with structlog.testing.capture_logs() as settled:
        await consumer.take(sealed[4], 5)
        await consumer.take(sealed[5], 6)

    assert [line["event"] for line in refused] == ["windows.fell_back"]
    assert [(line["event"], line["producer"], line["first"], line["last"]) for line in settled] == [
        ("sequence.gap", "controller-0", 2, 4)
    ]
    assert consumer.windows.missing.num_missing == 3


async def test_a_consumer_started_anew_knows_what_was_settled(
    redis: Redis, run_id: str, consumer: Consumer, sealed: list[bytes]
) -> None:
    await consumer.take(sealed[0], 1)

    anew = Consumer(redis, run_id)
    await anew.windows.load()

    assert await anew.take(sealed[0], 1)
    with structlog.testing.capture_logs() as lines:
        await anew.take(sealed[2], 3)
    assert [(line["first"], line["last"]) for line in lines] == [(2, 2)]


async def test_where_effects_are_elsewhere_a_redis_that_fell_back_is_told_what_was_seen(
    redis: Redis, run_id: str, consumer: Consumer, sealed: list[bytes]
) -> None:
    windows, others = consumer.windows, controller().seal(command("of another"))
    await windows.take_over()
    await consumer.insist(sealed[0], 1)
    stored = await redis.execute_command("DUMP", windows.hash_key)
    await consumer.insist(sealed[1], 2)
    await consumer.insist(others, 6)

    await redis.execute_command("RESTORE", windows.hash_key, 0, stored, "REPLACE")
    older = await consumer.insist(sealed[2], 3)
    await redis.delete(windows.hash_key)
    nothing = await consumer.insist(sealed[3], 4)

    assert (older, nothing, await consumer.insist(sealed[4], 5)) == ("older", "nothing", "whole")
    anew = Consumer(redis, run_id)
    await anew.windows.take_over()
    for number, met in enumerate([others, *sealed[:5]]):
        with pytest.raises(RefusedError, match="was met as entry"):
            await anew.insist(met, 10 + number)


async def test_a_redis_that_falls_back_to_what_an_earlier_process_stored_replaces_nobody(
    redis: Redis, run_id: str, consumer: Consumer, sealed: list[bytes]
) -> None:
    await consumer.windows.take_over()
    await consumer.insist(sealed[0], 1)
    stored = await redis.execute_command("DUMP", consumer.windows.hash_key)
    second, third = Consumer(redis, run_id), Consumer(redis, run_id)
    for anew in (second, third):
        await anew.windows.take_over()

    await redis.execute_command("RESTORE", consumer.windows.hash_key, 0, stored, "REPLACE")

    assert await third.insist(sealed[1], 2) == "older"
    with pytest.raises(ReplacedError):
        await second.insist(sealed[2], 3)
    with pytest.raises(ReplacedError):
        await consumer.insist(sealed[2], 3)


ODD = {
    "no window's name": b"commands/zz",
    "no number": b"commands/controller/x/0/1/a/b",
    "no UTF-8": b"commands/\xff/0/0/1/a/b",
    "a window cut short": b"commands/controller/00/0/1/a/b",
    "a gap cut short": b"gaps/controller",
}


@pytest.mark.parametrize("field", ODD.values(), ids=ODD)
async def test_a_field_that_is_none_of_ours_ends_whoever_takes_it_up_by_one_sentence(
    redis: Redis, consumer: Consumer, sealed: list[bytes], field: bytes
) -> None:
    await consumer.take(sealed[0], 1)
    await redis.hset(consumer.windows.hash_key, field, b"\xff")

    with pytest.raises(UnreadableError, match=r"no process of the run has written .*; expected what was settled"):
        await consumer.windows.load()


async def test_foreign_fields_beside_ours_and_a_version_of_any_bytes_are_no_matter(
    redis: Redis, consumer: Consumer, sealed: list[bytes]
) -> None:
    await consumer.windows.take_over()
    await consumer.insist(sealed[0], 1)
    await redis.hset(consumer.windows.hash_key, b"\xff", b"\xff")

    await consumer.windows.load()
    assert await consumer.insist(sealed[1], 2) == "whole"
    await redis.hset(consumer.windows.hash_key, "version", b"\xff")
    with pytest.raises(ReplacedError):
        await consumer.insist(sealed[2], 3)
