"""Who reads along more slowly than a stream is trimmed is told what it has missed."""

from __future__ import annotations

import socket
from contextlib import aclosing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from esper.bus import tail
from esper.bus.connect import Redis, reader
from esper.bus.faults import LostError
from esper.bus.names import key
from tests.bus_kit import put

BODIES = [b"%d" % number for number in range(600)]


async def test_a_reader_whom_trimming_has_overtaken_says_between_which_entries(redis: Redis, run_id: str) -> None:
    stream = key(run_id, "global")
    ids = await put(redis, stream, b"read")
    async with aclosing(tail.follow(redis, stream, "0")) as entries:
        read = [await anext(entries)]
        ids += await put(redis, stream, *BODIES)
        await redis.execute_command("XTRIM", stream, "MINID", ids[200])

        with capture_logs() as events:
            read += [await anext(entries) for _ in range(401)]

    assert [entry_id for entry_id, _ in read] == [ids[0], *ids[200:]]
    told = {"event": "entries.missed", "stream": stream, "after": ids[0], "before": ids[200], "log_level": "warning"}
    assert events == [told]


async def test_the_read_after_a_long_one_is_looked_at_too(redis: Redis, run_id: str) -> None:
    stream = key(run_id, "global")
    ids = await put(redis, stream, *BODIES[:300])
    async with aclosing(tail.follow(redis, stream, "0")) as entries:
        for _ in range(tail.COUNT):
            await anext(entries)
        await redis.execute_command("XTRIM", stream, "MINID", ids[290])

        with capture_logs() as events:
            read = [(await anext(entries))[0] for _ in ids[290:]]

    assert read == ids[290:]
    assert [(each["after"], each["before"]) for each in events] == [(ids[tail.COUNT - 1], ids[290])]


async def test_a_reader_who_was_stopped_for_long_looks_also_at_a_few_entries(
    redis: Redis, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "LONG_S", -1.0)
    stream = key(run_id, "global")
    ids = await put(redis, stream, b"read")
    async with aclosing(tail.follow(redis, stream, "0")) as entries:
        await anext(entries)
        ids += await put(redis, stream, *BODIES[:5])
        await redis.execute_command("XTRIM", stream, "MINID", ids[3])

        with capture_logs() as events:
            await anext(entries)

    assert [(each["after"], each["before"]) for each in events] == [(ids[0], ids[3])]


async def test_a_reader_who_is_late_and_has_missed_nothing_says_nothing(redis: Redis, run_id: str) -> None:
    stream = key(run_id, "global")
    ids = await put(redis, stream, b"old", b"read")
    async with aclosing(tail.follow(redis, stream, ids[0])) as entries:
        await anext(entries)
        ids += await put(redis, stream, *BODIES)
        await redis.execute_command("XTRIM", stream, "MINID", ids[1])

        with capture_logs() as events:
            read = [(await anext(entries))[0] for _ in range(600)]

    assert read == ids[2:]
    assert events == []


async def test_a_stream_that_began_after_its_reader_has_lost_nothing(redis: Redis, run_id: str) -> None:
    stream = key(run_id, "global")
    async with aclosing(tail.follow(redis, stream, "0")) as entries:
        ids = await put(redis, stream, *BODIES)

        with capture_logs() as events:
            read = [(await anext(entries))[0] for _ in range(600)]

    assert read == ids
    assert events == []


async def test_a_look_that_is_not_answered_holds_up_no_reader(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "MARGIN_S", 0.0)
    place = short_directory / "unanswered"

    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(place))
        silent.listen()
        async with reader(f"unix://{place}?socket_connect_timeout=600") as redis:  # the other limit there is
            with pytest.raises(LostError, match="no answer to a read of global"):
                await tail.tell_missed(redis, "global", "1-0", "2-0")
