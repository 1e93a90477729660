"""Reading along with a run: what was said before and after, each once, and what stands beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from esper.bus import connect, names
from esper.bus.faults import ForbiddenError
from esper.bus.group.inbox import Inbox
from esper.bus.upkeep import counters
from esper.bus.upkeep.counters import Count
from esper.client import Controller
from esper.errors import UnknownRunError
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.seal import Opened
from esper.runtime.access import Access
from esper.runtime.watching.live import Look, Watch, may_publish, reach, watching
from tests.bus_kit import own_server
from tests.scripted import ScriptedRun
from tests.web_kit import give_observer


@dataclass
class Notebook:
    """Keeps what it is given."""

    opened: list[Opened] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)

    def note(self, opened: Opened) -> None:
        self.opened.append(opened)

    def look(self, look: Look) -> None:
        self.looks.append(look)

    def steps(self, worker: str) -> list[int]:
        """Of a worker's heartbeats, in the order in which they came."""
        beats = [opened.message for opened in self.opened if isinstance(opened.message, pb.Heartbeat)]
        return [beat.step for beat in beats if beat.worker == worker]


async def until(watch: Watch, book: Notebook, count: int) -> None:
    while len(book.opened) < count:
        watch.changed.clear()
        await watch.changed.wait()


async def test_what_was_said_before_and_after_is_read_once_and_in_order(run: ScriptedRun) -> None:
    give_observer(run)
    for epoch in (1, 2):
        await run.beat(epoch)
    book = Notebook()

    async with watching(await reach(run.name), "test", book) as watch:
        assert book.steps("worker-1") == [100, 200]
        await run.beat(3)
        await until(watch, book, 6)

    assert book.steps("worker-0") == book.steps("worker-1") == [100, 200, 300]


async def test_only_the_newest_entries_of_a_long_stream_are_read_first(run: ScriptedRun) -> None:
    for epoch in range(1, 6):
        await run.beat(epoch, workers=("worker-0",))
    book = Notebook()

    async with watching(await reach(run.name), "test", book, {"heartbeats": 2}):
        assert book.steps("worker-0") == [400, 500]


async def test_an_observer_reads_commands_and_a_controller_does_not(run: ScriptedRun, controller: Controller) -> None:
    await controller.cull("s0")
    seen = []
    for prepare in (lambda _: None, give_observer):
        prepare(run)
        book = Notebook()
        async with watching(await reach(run.name), "test", book):
            seen.append([type(opened.message) for opened in book.opened])

    assert seen == [[], [pb.AdaptationCommand]]
    assert await may_publish(run.name)


async def test_a_look_tells_of_totals_lags_and_refusals(
    run: ScriptedRun, redis: connect.Redis, controller: Controller
) -> None:
    await run.beat(1)
    for stream in ("commands", "heartbeats"):
        await Inbox(redis, redis, names.key(run.run_id, stream), "worker-0", "worker-0").open()
    await controller.cull("s0")
    await redis.hset(names.key(run.run_id, "totals"), "counted", "64")
    labels = {"stream": names.key(run.run_id, "votes"), "reason": "bad_seal"}
    now_ms = await connect.server_ms(redis)
    await counters.publish(redis, run.run_id, "c", [Count("esper_messages_refused_total", labels, 3)], now_ms)
    book = Notebook()

    async with watching(await reach(run.name), "test", book):
        [look] = book.looks

    assert look.totals == {b"counted": b"64"}
    assert dict(look.lags) == {("commands", "worker-0"): 1}  # of what workers act on
    assert look.refused == {"votes": {"bad_seal": 3}}
    assert look.at_ms >= now_ms


@pytest.mark.parametrize("value", ["Infinity", "NaN", "1" + 400 * "0"])
async def test_counts_that_are_no_numbers_are_left_out(run: ScriptedRun, redis: connect.Redis, value: str) -> None:
    labels = f'{{"stream": "{names.key(run.run_id, "votes")}", "reason": "bad_seal"}}'
    counts = ", ".join(f'["esper_messages_refused_total", {labels}, {count}]' for count in (value, 2))
    said = f'{{"at_ms": {await connect.server_ms(redis)}, "counts": [{counts}]}}'
    await redis.hset(names.key(run.run_id, "counters"), "c", said)
    book = Notebook()

    async with watching(await reach(run.name), "test", book):
        [look] = book.looks

    assert look.refused == {"votes": {"bad_seal": 2}}


async def test_counts_that_nobody_can_read_are_left_out(run: ScriptedRun, redis: connect.Redis) -> None:
    labels = {"stream": names.key(run.run_id, "votes"), "reason": "bad_seal"}
    now_ms = await connect.server_ms(redis)
    await counters.publish(redis, run.run_id, "c", [Count("esper_messages_refused_total", labels, 3)], now_ms)
    await redis.hset(names.key(run.run_id, "counters"), "deep", 100_000 * "[")

    read = await counters.read(redis, run.run_id, now_ms)
    gone = await counters.forget_gone(redis, run.run_id, now_ms)

    assert [*read] == ["c"] and gone == 1


@pytest.mark.parametrize(("right", "totals"), [("+hgetall", {b"counted": b"64"}), ("-hgetall", None)])
async def test_what_a_user_may_not_read_is_left_out_and_the_rest_is_told(
    run: ScriptedRun, redis: connect.Redis, redis_url: str, right: str, totals: dict[bytes, bytes] | None
) -> None:
    await run.beat(1)
    await redis.hset(names.key(run.run_id, "totals"), "counted", "64")
    rights = ("on", "nopass", "~*", "+@read", "+@connection", "+time", "+xread", "-scan", right)
    await redis.execute_command("ACL", "SETUSER", run.name, *rights)
    keys, book = RoleKeyring.load(run.keyring), Notebook()
    url = f"unix://{run.name}:any@{redis_url.removeprefix('unix://')}"

    async with watching(Access(run.run_id, url, keys, run.keyring), "test", book) as watch:
        [look] = book.looks
        assert (look.totals, dict(look.lags), watch.trouble) == (totals, {}, "")
    await redis.execute_command("ACL", "DELUSER", run.name)

    assert book.steps("worker-0") == [100]


@asynccontextmanager
async def watched_by(run: ScriptedRun, redis: connect.Redis, book: Notebook, *rights: str) -> AsyncIterator[Watch]:
    """By a user of the server who may do this."""
    await redis.execute_command("ACL", "SETUSER", run.name, "on", "nopass", "+@connection", "+time", "+info", *rights)
    url = redis.url.replace("unix://", f"unix://{run.name}:any@")
    keys = RoleKeyring.load(run.keyring)
    try:
        async with watching(Access(run.run_id, url, keys, run.keyring), "test", book) as watch:
            yield watch
    finally:
        await redis.execute_command("ACL", "DELUSER", run.name)


async def test_a_stream_that_a_user_may_not_read_is_named_and_the_others_are_followed(
    run: ScriptedRun, redis: connect.Redis
) -> None:
    book = Notebook()
    readable = [f"~{names.key(run.run_id, name)}" for name in ("heartbeats", "receipts", "totals")]

    async with watched_by(run, redis, book, "+@read", "+xread", "-scan", *readable) as watch:
        await run.beat(1)
        await until(watch, book, 2)
        unread, trouble = {*watch.unread}, watch.trouble

    assert book.steps("worker-0") == [100]
    assert {"decisions", "state"} <= unread and not unread & {"heartbeats", "receipts"}
    assert trouble == ""


async def test_a_look_that_is_refused_is_told_once_however_often_it_is_taken(
    run: ScriptedRun, redis: connect.Redis
) -> None:
    kept = names.key(run.run_id, "heartbeats")

    with capture_logs() as told:
        async with watched_by(run, redis, Notebook(), "+@read", "+xread", "-hgetall", f"~{kept}") as watch:
            for _ in range(3):
                await watch.look(surveying=True)

    why = [row["why"] for row in told if row["event"] == "look.refused"]
    assert why and len(why) == len({*why})


async def test_a_stream_that_may_not_be_read_any_more_ends_nothing(run: ScriptedRun, redis: connect.Redis) -> None:
    book = Notebook()
    async with watched_by(run, redis, book, "~*", "+@read", "+xread") as watch:
        kept = names.key(run.run_id, "heartbeats")
        await redis.execute_command("ACL", "SETUSER", run.name, "resetkeys", f"~{kept}", f"~{kept}:any")
        while "state" not in watch.unread:
            watch.changed.clear()
            await watch.changed.wait()
        await run.beat(1)
        await until(watch, book, 2)

    assert book.steps("worker-0") == [100]


async def test_a_user_who_may_read_no_stream_is_refused(run: ScriptedRun, redis: connect.Redis) -> None:
    with pytest.raises(ForbiddenError, match="permission"):
        async with watched_by(run, redis, Notebook(), "~other", "+@read"):
            pass


async def test_a_look_asks_for_no_other_keys_than_the_runs_own(run: ScriptedRun, redis: connect.Redis) -> None:
    await run.beat(1)
    before = (await redis.info("commandstats")).get("cmdstat_scan", {"calls": 0})["calls"]

    async with watching(await reach(run.name), "test", Notebook()) as watch:
        await watch.look(surveying=True)

    assert (await redis.info("commandstats")).get("cmdstat_scan", {"calls": 0})["calls"] == before


async def test_a_server_that_is_gone_is_named_and_waited_for(run: ScriptedRun, short_directory: Path) -> None:
    keys, book = RoleKeyring.load(run.keyring), Notebook()
    with own_server(short_directory) as server:
        async with watching(Access(run.run_id, server.url, keys, run.keyring), "test", book) as watch:
            server.kill()
            await watch.look(surveying=True)
            assert "redis" in watch.trouble.lower()
            with pytest.raises(TimeoutError):  # it goes on, and work beside it is not ended
                async with asyncio.timeout(0.05):
                    await watch.along(asyncio.Event().wait())
    assert len(book.looks) == 1


async def test_a_run_that_is_not_there_is_refused_as_such(run: ScriptedRun) -> None:
    with pytest.raises(UnknownRunError):
        await reach("nowhere")
