"""Plain reads: the newest entries, and every one after a position."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from esper.bus import connect, tail
from esper.bus.connect import Redis
from esper.bus.faults import LostError
from esper.bus.names import key
from esper.bus.protocol import Argument
from esper.errors import BusError
from tests.bus_kit import own_server, put


async def test_last_gives_the_newest_oldest_first(redis: Redis, run_id: str) -> None:
    stream = key(run_id, "receipts")
    ids = await put(redis, stream, b"1", b"2", b"3")

    newest = await tail.last(redis, stream, 2)

    assert newest == [(ids[1], b"2"), (ids[2], b"3")]
    assert await tail.last(redis, key(run_id, "nothing"), 2) == []


async def test_follow_gives_every_entry_after_a_position(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    stream = key(run_id, "receipts")
    ids = await put(redis, stream, *(b"%d" % number for number in range(600)))

    seen: list[tuple[str, bytes]] = []
    async with aclosing(tail.follow(redis_reader, stream, ids[0])) as entries:
        async for entry in entries:
            seen.append(entry)
            if len(seen) == 599:
                break

    assert seen == [(ids[number], b"%d" % number) for number in range(1, 600)]


async def test_follow_from_now_leaves_out_what_was_there(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    stream = key(run_id, "receipts")
    [old] = await put(redis, stream, b"old")

    async with aclosing(tail.follow(redis_reader, stream)) as entries:
        first = asyncio.ensure_future(anext(entries))
        while not first.done():
            await put(redis, stream, b"new")

    assert first.result()[1] == b"new"
    assert first.result()[0] > old


async def test_follow_goes_on_where_it_was_after_the_server_was_killed(short_directory: Path, run_id: str) -> None:
    stream = key(run_id, "receipts")
    with own_server(short_directory) as server:
        async with connect.reader(server.url) as reader, aclosing(tail.follow(reader, stream, "0")) as entries:
            async with connect.writer(server.url) as writer:
                await put(writer, stream, b"1")
            before = await anext(entries)

            server.kill()
            server.start()
            async with connect.writer(server.url) as writer:
                await put(writer, stream, b"2")
            after = await anext(entries)

    assert (before[1], after[1]) == (b"1", b"2")


@pytest.mark.parametrize(
    "command",
    [
        ("XRANGE", "?", "-", "+"),
        ("XREAD", "COUNT", "1", "STREAMS", "?", "0"),
        ("XGROUP", "CREATE", "?", "g", "0"),
        (b"XINFO", b"STREAM", b"?"),
    ],
)
async def test_a_key_that_holds_something_else_is_named(
    redis: Redis, run_id: str, command: tuple[Argument, ...]
) -> None:
    votes = key(run_id, "votes")
    await redis.set(votes, "somebody else's")
    words = [votes if word in ("?", b"?") else word for word in command]

    with pytest.raises(BusError, match=f"key {votes} holds something else than X[A-Z]+ is for$"):
        await redis.ask(words)


async def test_an_outage_is_told_of_and_so_is_its_end(short_directory: Path, run_id: str) -> None:
    stream = key(run_id, "receipts")
    with own_server(short_directory) as server, capture_logs() as said:
        async with connect.reader(server.url) as reader, aclosing(tail.follow(reader, stream, "0")) as entries:
            coming = asyncio.ensure_future(anext(entries))
            server.kill()
            async with asyncio.timeout(60.0):
                while not said:
                    await asyncio.sleep(0.01)
            server.start()
            async with connect.writer(server.url) as writer:
                await put(writer, stream, b"1")
            await coming

    assert [(line["event"], line["stream"]) for line in said if line["event"].startswith("tail.")] == [
        ("tail.interrupted", stream),
        ("tail.resumed", stream),
    ]


async def test_the_newest_of_a_silent_server_are_not_waited_for_without_end(
    short_directory: Path, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_server(short_directory) as server:
        async with connect.reader(server.url) as reader:
            assert await tail.last(reader, key(run_id, "receipts"), 1) == []
            monkeypatch.setattr(tail, "WRITE_S", 0.1)
            assert server.process is not None
            os.kill(server.process.pid, signal.SIGSTOP)
            try:
                with pytest.raises(LostError, match="no answer"):
                    await tail.last(reader, key(run_id, "receipts"), 1)
            finally:
                os.kill(server.process.pid, signal.SIGCONT)
