"""The loop: each message answered once, a bad one set aside alone, and a process that ends as it is told."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from structlog.testing import capture_logs

from esper.bus.connect import Redis
from esper.bus.delivery import Delivery
from esper.bus.inbox import Inbox
from esper.bus.names import key
from esper.bus.outbox import Outbox
from esper.bus.settlement import Settlement
from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.runtime.serve import serve
from tests.bus_kit import bodies, num_pending, put

PROCESS = """
import asyncio
from esper.errors import BusError, SettingError
from esper.runtime import logging, process
from esper.runtime.settings import Settings

logging.configure(Settings())

async def main(stopping: asyncio.Event) -> None:
    print("up", flush=True)
    {body}
    print("down", flush=True)

process.run(main)
"""


def read(delivery: Delivery) -> bytes:
    if delivery.body.startswith(b"junk"):
        raise RefusedError(pb.ReasonCode.REASON_MALFORMED, "junk")
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_process_finish(number: signal.Signals) -> None:
    process = started("await stopping.wait()")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"

    process.send_signal(number)
    rest, _ = process.communicate()

    assert (rest, process.returncode) == ("down\n", 0)


def test_a_second_signal_ends_it_at_once() -> None:
    process = started("await stopping.wait(); print('stopping', flush=True); await asyncio.Event().wait()")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"

    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate()

    assert (rest, process.returncode) == ("", 1)


@pytest.mark.parametrize(
    ("body", "status"), [("raise BusError('gone')", 1), ("raise SettingError('ESPER_X', 1, 'two')", 2)]
)
def test_an_error_of_ours_is_one_line_and_an_exit_status(body: str, status: int) -> None:
    process = started(body)
    _, said = process.communicate()

    assert process.returncode == status
    assert len(said.splitlines()) == 1
    assert "process.failed" in said


def started(body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS.format(body=body)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
