"""What a run leaves behind on a Redis of its own, or outside, when it ends."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from esper.bus import connect, names, runs
from esper.bus.connect import Redis
from esper.bus.names import RUNS_KEY
from esper.cli.running.fleet import LogWait, announced, fleet, keep_log, run_of_keyrings
from esper.errors import SettingError
from esper.leyline.keys.keyring import KEYRINGS, MasterKeyring
from esper.leyline.kinds import Role
from esper.runtime import access
from esper.runtime.crew.runfile import RunFile, parse
from esper.runtime.history import logbook
from tests.bus_kit import no_room, own_server, put

RUN = "fleet-0a1b2c3d"
FILE = """
name = "fleet"
redis = "{url}"
runs_dir = "{runs}"
trainer.count = 0
"""


async def test_a_run_ends_in_order_also_where_its_outside_redis_is_gone_by_then(
    short_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    with own_server(short_directory) as server:
        read = parse(FILE.format(url=server.url, runs=tmp_path / "runs"), "run.toml")

        with capture_logs() as events:
            async with fleet(read) as run:
                server.kill()

    assert [event["event"] for event in events if event["log_level"] == "warning"] == [
        "log.not_kept",
        "run.not_taken_off",
    ]
    assert run.record not in runs.list_live()


async def test_a_process_of_a_run_finds_it_by_its_name_on_the_redis_that_it_is_told_of(
    short_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    async with fleet(parse(FILE.format(url="embedded", runs=tmp_path / "runs"), "run.toml")) as run:
        record = run.record

        found = await access.find("fleet", record.url, record.keyring("observer"), Role.OBSERVER)

    assert found.run_id == record.run_id


async def test_a_redis_outside_that_is_not_there_yet_is_waited_for_aloud(
    short_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    with own_server(short_directory) as server, capture_logs() as events:
        server.kill()
        starting = asyncio.create_task(started(parse(FILE.format(url=server.url, runs=tmp_path / "runs"), "run.toml")))
        while not events and not starting.done():
            await asyncio.sleep(0)
        server.start()

        run_id = await starting

    assert [(event["event"], event["run"]) for event in events[:1]] == [("redis.awaited", run_id)]
    assert "cannot be reached" in events[0]["why"]


async def test_a_redis_outside_that_was_flushed_is_told_the_runs_name_again(redis: Redis, run_id: str) -> None:
    record = runs.RunRecord(run_id, run_id.replace("test-", "flushed-"), redis.url, Path())

    async with announced(record, redis.url, listed_every_s=0.001):
        await runs.forget_outside(redis, record.name, run_id)  # as FLUSHALL does, for a server that tests share
        while not await is_listed(redis, record.name):
            await asyncio.sleep(0)

    assert not await is_listed(redis, record.name)


async def test_a_newer_run_keeps_the_name_that_it_took_over(redis: Redis, run_id: str) -> None:
    name, newer = run_id.replace("test-", "flushed-"), run_id.replace("test-", "newer-")
    await runs.announce_outside(redis, name, newer)

    is_listed_again = await runs.announce_again(redis, name, run_id)

    assert not is_listed_again
    assert await runs.resolve_outside(redis.url, name) == newer


async def is_listed(redis: Redis, name: str) -> bool:
    return bool(await redis.execute_command("HEXISTS", RUNS_KEY, name))


async def started(read: RunFile) -> str:
    async with fleet(read) as run:
        return run.record.run_id


async def test_a_run_whose_password_is_gone_by_its_end_says_that_its_log_is_not_kept(tmp_path: Path) -> None:
    record = runs.RunRecord("fleet-0a1b2c3d", "fleet", "redis://there:1", tmp_path, passwords=str(tmp_path / "gone"))

    with capture_logs() as events:
        await keep_log(record, tmp_path)

    [event] = events
    assert event["event"] == "log.not_kept" and "fleet-0a1b2c3d-operator.env" in event["why"]


WAITS, LOST = "log.waits_for_room", "log.not_kept"


@pytest.mark.parametrize(
    ("redis", "num_entries", "said", "is_lost"),
    [("embedded", 1, [WAITS, LOST], True), ("embedded", 0, [LOST], True), ("", 1, [LOST], False)],
)
async def test_only_a_log_that_goes_with_its_redis_waits_for_room_until_whoever_ends_the_run_is_in_a_hurry(
    redis: str,
    num_entries: int,
    said: list[str],
    is_lost: bool,
    short_directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    log_wait = LogWait()
    with own_server(short_directory) as outside, capture_logs() as events:
        read = parse(FILE.format(url=redis or outside.url, runs=tmp_path / "runs"), "run.toml")
        ending = asyncio.create_task(out_of_room(read, log_wait, [b"told"] * num_entries))
        while not (events or ending.done()):
            await asyncio.sleep(0)
        log_wait.hurried.set()
        await ending

    assert [event["event"] for event in events] == said
    assert (log_wait.is_log_lost, runs.list_live()) == (is_lost, [])


async def out_of_room(read: RunFile, log_wait: LogWait, told: list[bytes]) -> None:
    """A run whose disk is full by the time that it ends."""
    with ExitStack() as full:
        async with fleet(read, log_wait) as run:
            async with connect.writer(run.record.reach) as redis:
                await put(redis, names.key(run.record.run_id, "commands"), *told)
            full.enter_context(no_room())


async def test_a_run_with_keys_that_is_begun_again_finds_all_that_its_own_redis_held(
    short_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    keyrings = keyrings_in(tmp_path / "keys")
    asked = FILE.format(url="embedded", runs=tmp_path / "runs")
    read = parse(f'{asked}\nkeys = "{keyrings}"', "run.toml")
    async with fleet(read) as run, connect.writer(run.record.reach) as redis:
        held = await redis.execute_command("XADD", names.key(RUN, "commands"), "*", "m", b"sealed")

    async with fleet(read) as run, connect.writer(run.record.reach) as redis:
        [[entry_id, _]] = await redis.execute_command("XRANGE", names.key(RUN, "commands"), "-", "+")

    assert entry_id == held
    assert [entry.entry_id for entry in logbook.read_file(run.directory / "log" / "run.jsonl").entries] == [
        held.decode()
    ]
    assert not (run.record.directory / "appendonly.aof").exists()


def keyrings_in(folder: Path, run_id: str = RUN) -> Path:
    folder.mkdir()
    master = MasterKeyring.new(time.time_ns())
    for name, roles in KEYRINGS.items():
        master.derive(run_id, roles).save(folder / f"{name}.json")
    return folder


def test_keyrings_of_one_folder_name_their_run(tmp_path: Path) -> None:
    assert run_of_keyrings(keyrings_in(tmp_path / "keys")) == RUN


def test_a_folder_that_is_not_there_is_named_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SettingError, match=f"keys is '{tmp_path}/keys'; expected a folder of a run's keyrings"):
        run_of_keyrings(Path("keys"))


def test_keyrings_of_two_runs_are_refused(tmp_path: Path) -> None:
    folder, other = keyrings_in(tmp_path / "keys"), keyrings_in(tmp_path / "other", "other-00c0ffee")
    (other / "worker.json").replace(folder / "worker.json")

    with pytest.raises(SettingError, match=f"keyrings of one run, not of {RUN} and other-00c0ffee"):
        run_of_keyrings(folder)


def test_a_controllers_keyring_without_the_optimizers_keys_is_told_of_both(tmp_path: Path) -> None:
    folder = keyrings_in(tmp_path / "keys")
    (folder / "controller.json").unlink()
    MasterKeyring.new(time.time_ns()).derive(RUN, [Role.CONTROLLER]).save(folder / "controller.json")

    with pytest.raises(SettingError, match=r"expected a keyring for controller and optimizer \(esper keys derive"):
        run_of_keyrings(folder)


def test_a_keyring_of_another_role_is_refused(tmp_path: Path) -> None:
    folder = keyrings_in(tmp_path / "keys")
    (folder / "observer.json").replace(folder / "worker.json")
    keyrings_in(tmp_path / "again")
    (tmp_path / "again" / "observer.json").replace(folder / "observer.json")

    with pytest.raises(SettingError, match=r"keys is '.*/worker.json'; expected a keyring for worker"):
        run_of_keyrings(folder)
