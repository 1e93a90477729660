"""The loop: each message answered once, a bad one set aside alone, and a process that ends as it is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from esper.bus.connect import Redis, ServerClock
from esper.bus.group.consumer import Pace
from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.names import key
from esper.errors import UnsealedError
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opened, Opener, Sealer
from esper.runtime.serving.loop import serve
from esper.runtime.serving.refusals import NUM_LETTERS, Refusals
from tests.bus_kit import bodies, num_pending, put, reads_ahead
from tests.sealed import command


def read(delivery: Delivery) -> bytes:
    if delivery.body.startswith(b"junk"):
        raise UnsealedError(pb.ReasonCode.REASON_MALFORMED, "junk")
    return delivery.body


def upper(stream: str) -> Callable[[bytes], Iterator[tuple[str, bytes]]]:
    """A handler that answers in capitals, and dies of the word poison."""

    def handle(message: bytes) -> Iterator[tuple[str, bytes]]:
        if message == b"poison":
            raise ZeroDivisionError
        yield stream, message.upper()

    return handle


async def test_a_bad_message_is_set_aside_and_its_neighbours_go_on(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    votes, answers = key(run_id, "votes"), key(run_id, "decisions")
    [_, junk, _] = await put(redis, votes, b"a", b"junk", b"c")
    inbox = Inbox(redis_reader, redis, votes, "group", "c")

    await serve(inbox, read, upper(answers), Outbox(redis), until_idle=True)

    assert await bodies(redis, answers) == [b"A", b"C"]
    [(_, letter)] = await redis.execute_command("XRANGE", key(run_id, "dead"), "-", "+")
    assert (letter[b"reason"], letter[b"entry_id"]) == (b"malformed", junk.encode())
    assert await num_pending(redis, votes) == 0
    assert await bodies(redis, votes) == [b"a", b"c"]


async def test_a_message_that_kills_its_handler_five_times_is_dead_lettered_alone(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    votes, answers = key(run_id, "votes"), key(run_id, "decisions")
    await put(redis, votes, b"a", b"b", b"poison", b"c", b"d")
    num_deaths = 0

    while await num_pending(redis, votes) if num_deaths else True:
        inbox = Inbox(redis_reader, redis, votes, "group", "c")
        try:
            await serve(inbox, read, upper(answers), Outbox(redis), until_idle=True)
        except ZeroDivisionError:
            num_deaths += 1

    assert num_deaths == 5
    assert await bodies(redis, answers) == [b"A", b"B", b"C", b"D"]
    [(_, letter)] = await redis.execute_command("XRANGE", key(run_id, "dead"), "-", "+")
    assert (letter[b"reason"], letter[b"attempts"], letter[b"m"]) == (b"poison", b"5", b"poison")


async def test_a_batch_that_lost_one_lease_is_answered_again_without_it(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    votes, answers = key(run_id, "votes"), key(run_id, "decisions")
    [stolen, _] = await put(redis, votes, b"a", b"b")
    outbox = RobbedOutbox(redis, ("XCLAIM", votes, "group", "other", "0", stolen))

    with capture_logs() as events:
        await serve(Inbox(redis_reader, redis, votes, "group", "c"), read, upper(answers), outbox, until_idle=True)

    assert await bodies(redis, answers) == [b"B"]
    assert [event["event"] for event in events] == ["lease.lost"]
    [left] = await redis.xpending_range(votes, "group", "-", "+", 10)
    assert (left["consumer"], left["times_delivered"]) == (b"other", 1)  # no failure: who lost it lives


@dataclass(frozen=True)
class Sealed:
    """One run's controller, and how a worker reads what it sealed: with no memory of its own of what it has seen."""

    sealer: Sealer
    opener: Opener
    clock: ServerClock

    def message(self, command_id: str) -> bytes:
        return self.sealer.seal(command(command_id))

    def read(self, delivery: Delivery) -> Opened:
        return self.opener.open(delivery.body, delivery.entry_id, self.clock.now_ms())


@pytest.fixture
async def sealed(redis: Redis, run_id: str) -> Sealed:
    clock, master = ServerClock(), MasterKeyring.new(time.time_ns())
    await clock.look(redis)
    sealer = Sealer(master.derive(run_id, [Role.CONTROLLER]), Role.CONTROLLER, "controller-0")
    return Sealed(sealer, Opener(master.derive(run_id, [Role.WORKER]), guard=None, accept=[Domain.COMMAND]), clock)


async def test_a_message_added_twice_takes_effect_once_though_two_workers_meet_one_entry_each(
    redis: Redis, redis_reader: Redis, run_id: str, sealed: Sealed
) -> None:
    commands, answers = key(run_id, "commands"), key(run_id, "decisions")
    messages = [sealed.message(f"c{number}") for number in range(40)]
    await put(redis, commands, *messages[:20], *messages[10:], *messages[:3])

    def answer(opened: Opened) -> Iterator[tuple[str, bytes]]:
        yield answers, opened.message.command_id.encode()  # type: ignore[attr-defined]

    with capture_logs() as events:
        workers = [
            serve(
                Inbox(redis_reader, redis, commands, "group", name, Pace(count=4, reclaim_after_ms=60_000)),
                sealed.read,
                answer,
                Outbox(redis),
                until_idle=True,
            )
            for name in ("w0", "w1", "w2")
        ]
        await asyncio.gather(*workers)

    assert sorted(await bodies(redis, answers)) == sorted(f"c{number}".encode() for number in range(40))
    assert await num_pending(redis, commands) == 0
    assert {event["event"] for event in events} <= {"messages.repeated"}


async def test_what_is_refused_beside_a_replay_is_counted_once_and_keeps_its_letter(
    redis: Redis, redis_reader: Redis, run_id: str, sealed: Sealed
) -> None:
    commands, refusals, good = key(run_id, "commands"), Refusals(), sealed.message("c0")
    await put(redis, commands, good)
    for ahead in ([], [b"junk"] * NUM_LETTERS + [good]):
        await put(redis, commands, *ahead)
        inbox = Inbox(redis_reader, redis, commands, "group", "w", Pace(count=2 * NUM_LETTERS, reclaim_after_ms=60_000))
        await serve(inbox, sealed.read, lambda _: (), Outbox(redis), until_idle=True, refusals=refusals)

    assert refusals.counts == {(commands, "malformed"): NUM_LETTERS}
    assert refusals.num_untold == 0
    assert await redis.execute_command("XLEN", key(run_id, "dead")) == NUM_LETTERS


async def test_a_message_that_was_handled_is_known_after_the_group_was_lost(
    redis: Redis, redis_reader: Redis, run_id: str, sealed: Sealed
) -> None:
    commands, answers = key(run_id, "commands"), key(run_id, "decisions")
    await put(redis, commands, sealed.message("c0"))

    for _ in range(2):
        inbox = Inbox(redis_reader, redis, commands, "group", "w", Pace(reclaim_after_ms=60_000))
        await serve(inbox, sealed.read, lambda _: [(answers, b"done")], Outbox(redis), until_idle=True)
        await redis.execute_command("XGROUP", "DESTROY", commands, "group")

    assert await bodies(redis, answers) == [b"done"]


async def test_a_busy_loop_that_is_stopped_hands_back_what_it_read_ahead(
    redis: Redis, redis_reader: Redis, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads_ahead(monkeypatch)
    votes, answers = key(run_id, "votes"), key(run_id, "decisions")
    await put(redis, votes, *(b"%d" % number for number in range(200)))
    leaving = Inbox(redis_reader, redis, votes, "group", "leaving", Pace(count=10, reclaim_after_ms=60_000))

    def stop_at_once(message: bytes) -> list[tuple[str, bytes]]:
        leaving.stop()
        return [(answers, message)]

    await serve(leaving, read, stop_at_once, Outbox(redis))
    heir = Inbox(redis_reader, redis, votes, "group", "heir", Pace(count=10, reclaim_after_ms=60_000))
    await serve(heir, read, lambda message: [(answers, message)], Outbox(redis), until_idle=True)

    assert sorted(map(int, await bodies(redis, answers))) == list(range(200))
    left = [(row["name"], row["pending"]) for row in await redis.xinfo_consumers(votes, "group")]
    assert left == [(b"released", 0)]


async def test_on_a_busy_stream_every_batch_is_settled_in_order_though_leases_are_lost(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    votes, answers = key(run_id, "votes"), key(run_id, "decisions")
    entries = await put(redis, votes, *(b"%d" % number for number in range(100)))
    outbox = RobbedOutbox(redis, ("XCLAIM", votes, "group", "other", "0", entries[3]))

    inbox = Inbox(redis_reader, redis, votes, "group", "c", Pace(count=10))
    await serve(inbox, read, upper(answers), outbox, until_idle=True)

    expected = [number for number in range(100) if number != 3]
    assert sorted(map(int, await bodies(redis, answers))) == expected
    assert await num_pending(redis, votes) == 1


class RobbedOutbox(Outbox):
    """A real outbox; another consumer takes an entry over just before its first settlement."""

    def __init__(self, redis: Redis, robbery: tuple[str, ...]) -> None:
        super().__init__(redis)
        self.robbery = robbery

    async def settle(self, settlement: Settlement) -> list[str]:
        if self.robbery:
            await self.redis.execute_command(*self.robbery)
            self.robbery = ()
        return await super().settle(settlement)
