"""Each way in which Redis can fail us is one clear sentence, and costs nothing that was acknowledged."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from esper.bus import connect
from esper.bus.acl import enforceable
from esper.bus.client.version import version_of
from esper.bus.durability import facts_of
from esper.bus.embedded import EmbeddedRedis
from esper.bus.faults import FailingDiskError, LostError, OutOfMemoryError, ReadOnlyError, translated, without_password
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.names import key
from esper.bus.publisher import Publisher
from esper.bus.retry import add_until_answered
from esper.errors import BusError, SettingError
from tests.bus_kit import bodies, drain, fill_disk, free_disk, lossy_line, num_pending, put
from tests.many_servers import HOST, free_ports


async def test_a_server_that_is_gone_is_named_without_the_password() -> None:
    async with connect.writer("redis://user:secret@127.0.0.1:1/0") as redis:
        with pytest.raises(LostError, match=r"redis://127\.0\.0\.1:1/0 cannot be reached") as gone:
            await Publisher(redis).add("stream", b"m")

    assert "secret" not in str(gone.value)
    assert without_password("unix://user@/tmp/redis.sock?password=secret") == "unix:///tmp/redis.sock"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:se/cr#e?t@host:1/0", "redis://host:1/0"),
        ("user:secret@host:6379", "host:6379"),
        ("redis://host:1/0?password=secret", "redis://host:1/0"),
        ("unix:///tmp/a@b/redis.sock", "unix:///tmp/a@b/redis.sock"),
    ],
)
def test_a_url_is_shown_without_a_password_also_where_nobody_quoted_it(url: str, shown: str) -> None:
    assert without_password(url) == shown


UNKNOWN = ["redis://localhost/0?protocl=3", "redis+cluster://localhost?protocl=3", "rediss://h?ssl_cert_reqs=perhaps"]


@pytest.mark.parametrize("url", ["", "localhost:6379", "http://localhost", "redis://localhost:port", *UNKNOWN])
def test_a_url_that_is_none_of_redis_is_refused_by_name(url: str) -> None:
    with pytest.raises(SettingError, match="ESPER_REDIS_URL is"):
        connect.writer(url)


def test_a_write_to_a_connection_that_was_just_reset_counts_as_lost() -> None:
    closed = RuntimeError(
        "unable to perform operation on <TCPTransport closed=True reading=False>; the handler is closed"
    )

    assert isinstance(translated(closed, "redis://host"), LostError)
    with pytest.raises(RuntimeError, match="of another kind"):
        translated(RuntimeError("of another kind"), "redis://host")


async def test_a_server_without_memory_writes_nothing_and_the_batch_can_be_settled_later(
    server: EmbeddedRedis, run_id: str
) -> None:
    stream, answers = key(run_id, "votes"), key(run_id, "decisions")
    async with connect.reader(server.url) as reader, connect.writer(server.url) as writer:
        await put(writer, stream, b"1")
        [delivery] = await drain(Inbox(reader, writer, stream, "group", "c"))
        settlement = Settlement()
        settlement.ack(delivery)
        settlement.write(answers, b"answer")

        await writer.config_set("maxmemory", "1")
        with pytest.raises(OutOfMemoryError, match="out of memory: free some, or raise its maxmemory"):
            await Outbox(writer, patience_s=0).settle(settlement)
        pending = await num_pending(writer, stream)
        await writer.config_set("maxmemory", "0")
        written = await Outbox(writer).settle(settlement)

        assert pending == 1
        assert len(written) == await writer.xlen(answers) == 1


async def test_a_server_whose_disk_is_full_is_worked_with_and_has_what_waited_once_there_is_room(
    short_directory: Path, run_id: str
) -> None:
    with EmbeddedRedis(short_directory / "full") as server:
        async with connect.writer(server.url) as writer:
            fill_disk(server)
            with pytest.raises(FailingDiskError, match="cannot write to its disk, and refuses writes until it can"):
                await put(writer, run_id, *[b"met"] * 10_000)
            before = len(await bodies(writer, run_id))

            await connect.wait_ready(writer, 0.0)
            waiting = asyncio.create_task(add_until_answered(Publisher(writer).add, run_id, b"late", 60.0))
            while not writer.outage.said:
                await asyncio.sleep(0)
            free_disk(server)
            await waiting

            assert (await bodies(writer, run_id))[before:] == [b"late"]


async def test_a_server_that_a_script_holds_up_is_waited_out(server: EmbeddedRedis, run_id: str) -> None:
    async with connect.writer(server.url) as somebody, connect.writer(server.url) as writer:
        await writer.config_set("lua-time-limit", "1")  # in milliseconds: then it tells whoever asks
        endless = asyncio.create_task(somebody.execute_command("EVAL", "while true do end", 0))
        while not writer.outage.said:  # until the script has begun
            with suppress(LostError):
                await Publisher(writer).add(run_id, b"before")
        said = writer.outage.said

        async def end_it(_: float) -> None:
            with suppress(BusError):  # it is on its way out already
                await writer.execute_command("SCRIPT", "KILL")

        added = await add_until_answered(Publisher(writer).add, run_id, b"meanwhile", 60.0, pause=end_it)
        with suppress(BusError):
            await endless

        assert "held up by somebody's script, and serves nobody: SCRIPT KILL ends it" in said
        assert added.again
        assert (await bodies(writer, run_id))[-1] == b"meanwhile"


async def test_a_replica_is_refused_at_start_and_named_when_it_becomes_one(server: EmbeddedRedis) -> None:
    async with connect.writer(server.url) as writer:
        await writer.execute_command("REPLICAOF", "127.0.0.1", "1")

        with pytest.raises(ReadOnlyError, match="is read-only"):
            await Publisher(writer).add("stream", b"m")
        with pytest.raises(BusError, match="expected the primary's URL"):
            await connect.check_server(writer)


async def test_who_is_refused_by_a_replica_asks_anew_where_the_address_leads(server: EmbeddedRedis) -> None:
    async with connect.writer(server.url) as writer:
        before = await writer.ask(("CLIENT", "ID"))
        await writer.ask(("REPLICAOF", "127.0.0.1", "1"))

        with pytest.raises(ReadOnlyError, match="is read-only"):
            await Publisher(writer).add("stream", b"m")

        assert await writer.ask(("CLIENT", "ID")) != before


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_policy_that_may_evict_is_refused_at_start(server: EmbeddedRedis, policy: str) -> None:
    async with connect.writer(server.url) as writer:
        await writer.config_set("maxmemory-policy", policy)

        with pytest.raises(BusError, match=f"maxmemory-policy {policy}, which may evict streams; expected noeviction"):
            await connect.check_server(writer)


@pytest.mark.parametrize(
    ("info", "fits", "tells_apart"),
    [
        ({"redis_version": "7.0.15"}, True, True),
        ({"redis_version": "8.0-rc1"}, True, True),
        ({"redis_version": 7.4}, True, True),  # as the library reads a version of two numbers
        ({"redis_version": "7"}, True, False),
        ({"redis_version": "6.2.14"}, True, False),
        ({"redis_version": "6.0.16"}, False, False),
        ({"redis_version": "unstable"}, False, False),
        ({}, False, False),
    ],
)
async def test_a_server_is_judged_by_whatever_version_it_tells(
    info: dict[str, Any], fits: bool, tells_apart: bool
) -> None:
    async with connect.writer("redis://there:1") as redis:
        with nullcontext() if fits else pytest.raises(BusError, match=r"is version .*; expected 6\.2 or newer"):
            connect.check_facts(redis, info)

    assert bool(enforceable(version_of(info))) is tells_apart
    assert (facts_of(info, {}).version >= (6, 2)) is fits


async def test_an_xadd_through_a_lost_connection_is_tried_once(server: EmbeddedRedis) -> None:
    async with connect.writer(server.url) as writer:
        await Publisher(writer).add("stream", b"1")
        server.kill()

        with pytest.raises(LostError):
            await Publisher(writer).add("stream", b"2")
        server.start()

        assert await writer.xlen("stream") == 1


async def test_patience_begins_with_the_first_try(server: EmbeddedRedis) -> None:
    async with connect.writer(server.url) as writer:
        process_id = int((await writer.info("server"))["process_id"])
        number = await writer.ask(("CLIENT", "ID"))
        writer.deadline_s = 0.2

        os.kill(process_id, signal.SIGSTOP)
        try:
            with pytest.raises(LostError):
                await add_until_answered(Publisher(writer).add, "stream", b"1", 0.1)
        finally:
            os.kill(process_id, signal.SIGCONT)
        writer.deadline_s = connect.WRITE_S

        assert await writer.ask(("CLIENT", "ID")) == number + 1  # over another connection, and there was none between


async def test_an_xadd_whose_reply_is_lost_makes_one_entry(
    redis: connect.Redis, redis_url: str, short_directory: Path, run_id: str
) -> None:
    stream = key(run_id, "commands")
    async with lossy_line(redis_url, short_directory) as (line, url), connect.writer(url) as lossy:
        await connect.wait_ready(lossy)
        line.lose = b"XADD"

        with pytest.raises(LostError):
            await Publisher(lossy).add(stream, b"once")

    assert line.num_lost == 1
    assert await redis.xlen(stream) == 1


async def test_a_line_that_loses_replies_passes_on_what_comes_in_pieces(
    redis_url: str, short_directory: Path, run_id: str
) -> None:
    large = bytes(1 << 20)  # more than a reader holds
    async with lossy_line(redis_url, short_directory) as (line, url), connect.writer(url) as lossy:
        await lossy.ask(("SET", run_id, large))
        line.lose = b"XADD"

        assert await lossy.ask(("GET", run_id)) == large

    assert line.num_lost == 0


async def test_a_wrong_password_is_an_error_and_not_waited_out(server: EmbeddedRedis) -> None:
    async with connect.writer(server.url) as writer, connect.writer(f"{server.url}?password=wrong") as wrong:
        await writer.config_set("requirepass", "right")

        with pytest.raises(BusError, match="refuses us") as refused:
            await connect.wait_ready(wrong)

    assert not isinstance(refused.value, LostError)


@pytest.mark.parametrize(
    ("right", "given", "expected"),
    [
        ("right", "", "refuses us: Authentication required; expected a password, in ESPER_REDIS_PASSWORD or in"),
        (
            "right",
            "?password=wrong",
            "expected the password of a user that the server knows: in the file that ESPER_REDIS_PASSWORD_FILE",
        ),
        ("right", "?username=nobody&password=right", "expected the password of a user that the server knows"),
        ("", "?password=right", "expected no password, neither in ESPER_REDIS_PASSWORD nor in the URL"),
    ],
)
async def test_a_user_or_a_password_that_does_not_fit_is_told_where_to_mend_it(
    server: EmbeddedRedis, right: str, given: str, expected: str
) -> None:
    async with connect.writer(server.url) as writer, connect.writer(f"{server.url}{given}") as refused:
        await writer.config_set("requirepass", right)

        with pytest.raises(BusError) as told:
            await connect.wait_ready(refused)

    assert expected in str(told.value) and "..." not in str(told.value) and ".;" not in str(told.value)


async def test_a_server_that_is_no_sentinel_is_said_to_be_none(short_directory: Path) -> None:
    [port] = free_ports(1)
    with EmbeddedRedis(short_directory / "no-sentinel", options={"port": str(port), "bind": HOST}):
        async with connect.writer(f"redis+sentinel://{HOST}:{port}/mymaster") as writer:
            with pytest.raises(BusError, match="is no Sentinel; expected redis:// for a server of its own"):
                await connect.wait_ready(writer)


async def test_the_clock_is_the_servers(server: EmbeddedRedis) -> None:
    clock = connect.ServerClock()
    async with connect.writer(server.url) as writer:
        before, began_s = await connect.server_ms(writer), time.monotonic()
        await clock.look(writer)
        unsure_ms = (time.monotonic() - began_s) / 2 * 1000  # when within a look the server told the time
        now = clock.now_ms()
        after = await connect.server_ms(writer)

    assert before - unsure_ms - 1 <= now <= after + unsure_ms + 1


async def test_a_look_that_takes_long_sets_no_clock_that_is_right(server: EmbeddedRedis) -> None:
    """As where this process is stopped for minutes: what it seals until the next look would be refused."""
    clock, looks_s = connect.ServerClock(), list[float]()
    async with connect.writer(server.url) as writer:
        for _ in range(5):
            began_s = time.monotonic()
            await clock.look(writer)
            looks_s.append(time.monotonic() - began_s)
        known_ms = clock.offset_ms
        await writer.client_pause(600, all=True)
        await clock.look(writer)

    assert clock.offset_ms is not None and known_ms is not None
    assert abs(clock.offset_ms - known_ms) <= min(looks_s) * 1000 + 2  # no further off can it have been


def test_the_clock_is_not_guessed() -> None:
    with pytest.raises(BusError, match="before it was looked at"):
        connect.ServerClock().now_ms()
