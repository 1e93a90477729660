"""A run's own Redis that dies is started again on what it had stored, and what waits in streams is waited for."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from esper.bus import connect
from esper.bus.embedded import EmbeddedRedis
from esper.bus.runs import RunRecord
from esper.cli.running import fleet
from esper.cli.running.fleet import Fleet, example_file
from esper.cli.running.keeping import Draining, KeptRedis
from esper.cli.running.plan import LocalRun
from esper.runtime.crew.crash_report import ProcessDiedError
from esper.runtime.crew.crew import Notes
from esper.runtime.crew.runfile import Restart
from esper.runtime.watching.settled import settled
from tests.crew_kit import Said


async def test_a_redis_that_was_killed_is_started_again_with_what_it_had_stored(
    server: EmbeddedRedis, tmp_path: Path
) -> None:
    async with connect.writer(server.url) as redis:
        await redis.execute_command("SET", "kept", "1")
    kept = KeptRedis(server, Restart(first_s=0.0), Notes(), tmp_path)
    tending = asyncio.create_task(kept.tend())
    assert server.process is not None
    first = server.process.pid

    server.process.kill()
    while kept.row()["restarts"] == 0 or kept.row()["state"] != "ready":
        await asyncio.sleep(0)

    tending.cancel()
    async with connect.writer(server.url) as redis:
        assert await redis.execute_command("GET", "kept") == b"1"
    row = kept.row()
    assert (row["restarts"], row["last_end"]) == (1, "signal SIGKILL")
    assert row["pid"] not in (None, first) and row["rss_bytes"] > 100_000


async def test_a_redis_that_keeps_dying_is_given_up_with_its_last_words(server: EmbeddedRedis, tmp_path: Path) -> None:
    kept = KeptRedis(server, Restart(limit=0), Notes(), tmp_path)
    assert server.process is not None
    server.process.kill()

    with pytest.raises(ProcessDiedError, match="redis ended with signal SIGKILL"):
        await kept.tend()


async def test_a_redis_that_can_not_be_started_again_is_tried_again_and_then_given_up(
    server: EmbeddedRedis, tmp_path: Path
) -> None:
    assert server.process is not None
    server.options = {"appenddirname": "/not/a/name"}
    notes = Said()
    server.process.kill()

    with pytest.raises(ProcessDiedError, match="redis ended with signal SIGKILL"):
        await KeptRedis(server, Restart(first_s=0.0, limit=2), notes, tmp_path).tend()

    assert [event for event, _ in notes.events] == ["process.died", "redis.not_started"] * 2


async def test_a_redis_whose_folder_is_gone_is_tried_again_and_then_given_up(
    server: EmbeddedRedis, tmp_path: Path
) -> None:
    assert server.process is not None
    server.directory = tmp_path / "file"
    server.directory.touch()
    notes = Said()
    server.process.kill()

    with pytest.raises(ProcessDiedError, match="redis ended with signal SIGKILL"):
        await KeptRedis(server, Restart(first_s=0.0, limit=2), notes, tmp_path).tend()

    assert [event for event, _ in notes.events] == ["process.died", "redis.not_started"] * 2


async def test_a_redis_outside_that_does_not_answer_is_asked_once_at_the_end(
    short_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "AWAY_S", 0.0)
    place, notes = short_directory / "outside", Said()
    record = RunRecord("run-00c0ffee", "run", f"unix://{place}", tmp_path)
    draining = Draining(Fleet(example_file(), LocalRun(record, tmp_path), None), notes)

    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(place))
        silent.listen()
        for role in ("trainer", "regional", "global"):
            await draining(role)
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):  # nobody has called a second time
            silent.accept()

    why = f"Redis at unix://{place} cannot be reached: no answer in time"
    assert notes.events == [("tier.unsettled", {"tier": tier, "why": why}) for tier in ("regional", "global")]


async def test_entries_are_waited_for_until_they_are_settled_or_it_takes_too_long(
    redis: connect.Redis, run_id: str
) -> None:
    stream = f"esper:{{{run_id}}}:telemetry"
    await redis.execute_command("XGROUP", "CREATE", stream, "regional", "0", "MKSTREAM")
    first = await redis.execute_command("XADD", stream, "*", "m", "1")
    await redis.execute_command("XADD", stream, "*", "m", "2")
    await redis.execute_command("XREADGROUP", "GROUP", "regional", "a", "COUNT", "1", "STREAMS", stream, ">")
    groups = [(stream, "regional"), (f"{stream}-of-nobody", "regional")]
    assert await settled(redis, groups, 0.0) == 2  # one unread, one pending

    waiting = asyncio.create_task(settled(redis, groups, 30.0))
    await redis.execute_command("XREADGROUP", "GROUP", "regional", "a", "STREAMS", stream, ">")
    second = (await redis.execute_command("XREVRANGE", stream, "+", "-", "COUNT", "1"))[0][0]
    await redis.execute_command("XACK", stream, "regional", first, second)

    assert await waiting == 0
