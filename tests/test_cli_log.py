"""`esper log` exports what the streams of a run hold, and the archive of what was trimmed of them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Literal

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from esper.bus import connect, names, runs
from esper.cli.main import app
from esper.leyline.archive import encode_line
from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.kinds import Role
from esper.runtime.history import logbook
from tests.bus_kit import no_room
from tests.log_kit import Writer, toy


async def put(redis: connect.Redis, run: Writer) -> None:
    """The run's entries under ids of their own, on the streams of a real server."""
    for entry in run.book.entries:
        key = names.key(run.book.run_id, entry.stream)
        await redis.execute_command("XADD", key, entry.entry_id, "m", entry.sealed)


def exported(folder: Path, run: Writer, redis_url: str, patch: pytest.MonkeyPatch) -> logbook.Logbook:
    """What the command writes of a run on an outside server."""
    keyring = folder / "observer.json"
    run.master.derive(run.book.run_id, [Role.OBSERVER]).save(keyring)
    patch.setenv("ESPER_REDIS_URL", redis_url)
    patch.setenv("ESPER_KEYRING", str(keyring))
    out = folder / "out" / "run.jsonl"
    said = CliRunner().invoke(app, ["log", run.book.run_id, "--out", str(out), "--runs-dir", str(folder)])
    assert said.exit_code == 0, said.output
    assert f"run {run.book.run_id}, 1 commands, 1 optimizer, 4 decisions, 10 receipts, 0 emergency" in said.output
    return logbook.read_file(out)


async def test_a_live_run_is_exported_with_every_entry_of_its_streams(
    redis: connect.Redis, redis_url: str, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = toy(run_id)
    await put(redis, run)

    book = await asyncio.to_thread(exported, tmp_path, run, redis_url, monkeypatch)

    assert (book.run_id, book.flaws) == (run_id, [])
    assert list(book.entries) == list(run.book.entries)
    assert book.keys == logbook.key_ids(run.book.entries)


async def test_what_was_trimmed_comes_from_the_archive_and_what_is_in_both_comes_once(
    redis: connect.Redis, redis_url: str, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = toy(run_id)
    await put(redis, run)
    archive = tmp_path / run_id / logbook.LOG
    archive.mkdir(parents=True)
    decisions = run.book.streams["decisions"]
    (archive / "decisions.jsonl").write_bytes(b"".join(map(encode_line, decisions[:3])) + b'{"stream":"deci')
    await redis.execute_command("XTRIM", names.key(run_id, "decisions"), "MINID", decisions[2].entry_id)

    book = await asyncio.to_thread(exported, tmp_path, run, redis_url, monkeypatch)

    assert list(book.entries) == list(run.book.entries)


async def test_the_end_of_a_run_leaves_its_log_and_what_opens_it(
    redis: connect.Redis, redis_url: str, run_id: str, tmp_path: Path
) -> None:
    run = toy(run_id)
    await put(redis, run)
    run.keyring.save(tmp_path / "observer.json")

    await logbook.keep(redis_url, run_id, tmp_path / "observer.json", tmp_path / run_id / "log")

    for name in (run_id, run_id.rpartition("-")[0]):
        book, keys = await logbook.find(name, tmp_path)
        assert isinstance(keys, RoleKeyring)
        assert all(read.opened for reads in logbook.opened(book, keys).values() for read in reads)
        assert list(book.entries) == list(run.book.entries)


async def test_a_log_that_finds_no_room_is_kept_once_there_is_some(
    redis: connect.Redis, redis_url: str, run_id: str, tmp_path: Path
) -> None:
    run = toy(run_id)
    await put(redis, run)
    run.keyring.save(tmp_path / "observer.json")

    with capture_logs() as events:
        with no_room():
            keeping = asyncio.create_task(
                logbook.keep(redis_url, run_id, tmp_path / "observer.json", tmp_path / run_id / "log", asyncio.Event())
            )
            while not (events or keeping.done()):
                await asyncio.sleep(0)
        await keeping

    book, keys = await logbook.find(run_id, tmp_path)
    assert list(book.entries) == list(run.book.entries) and keys is not None
    assert [(event["event"], event["folder"]) for event in events] == [
        ("log.waits_for_room", str(tmp_path / run_id / "log"))
    ]


@pytest.mark.parametrize(
    ("below", "num_bytes", "num_looks"), [("", 1, 1), ("", 1 << 62, logbook.LOOKS), ("none/of/these", 1 << 62, 1)]
)
async def test_a_log_is_not_written_anew_before_there_can_be_room_for_it(
    below: str, num_bytes: int, num_looks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logbook, "ROOM_S", 1e-6)
    hurried = Awaited()

    await logbook.until_room(tmp_path / below, num_bytes, hurried)

    assert hurried.num_awaited == num_looks


class Awaited(asyncio.Event):
    """Counts how often somebody waited for it."""

    num_awaited = 0

    async def wait(self) -> Literal[True]:
        self.num_awaited += 1
        return await super().wait()


async def test_a_name_is_that_of_the_live_run_and_an_id_that_of_the_ended_one(
    redis: connect.Redis, redis_url: str, tmp_path: Path, short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    monkeypatch.delenv("ESPER_REDIS_URL", raising=False)
    ended = toy("twice-0a1b2c3d")
    ended.save(tmp_path / ended.book.run_id / "log" / "run.jsonl")
    with runs.register("twice", started_ns=1, url=redis_url) as record:
        live = toy(record.run_id, ended=False)
        live.keyring.save(record.keyring(Role.OBSERVER))
        await put(redis, live)
        try:
            found = [(await logbook.find(name, tmp_path))[0] for name in ("twice", ended.book.run_id)]
            again = await asyncio.to_thread(
                CliRunner().invoke, app, ["replay", "twice", "--runs-dir", str(tmp_path), "--dry-run"]
            )
        finally:
            await redis.execute_command("DEL", *(names.key(record.run_id, name) for name in live.book.streams))

    assert [book.run_id for book in found] == [record.run_id, ended.book.run_id]
    assert again.exit_code == 2
    assert f"{record.run_id} still goes on, and worker-0 did not end" in again.stderr


async def test_a_redis_that_is_gone_costs_the_log_and_not_the_end(tmp_path: Path) -> None:
    began = time.monotonic()
    await logbook.keep("unix:///nonexistent/redis.sock", "gone-0a1b2c3d", tmp_path / "none.json", tmp_path / "log")

    assert not (tmp_path / "log").exists()
    assert time.monotonic() - began < 60


def test_a_file_is_exported_as_it_is(tmp_path: Path) -> None:
    path = toy().save(tmp_path / "run.jsonl")
    said = CliRunner().invoke(app, ["log", str(path)])

    assert said.exit_code == 0
    assert said.stdout_bytes == path.read_bytes()


def test_a_place_that_cannot_be_written_to_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    log, taken = toy().save(tmp_path / "run.jsonl"), tmp_path / "taken"
    (taken / "run.jsonl").mkdir(parents=True)

    answers = [
        CliRunner().invoke(app, ["log", str(log), "--out", str(out)]) for out in (log / "below", taken / "run.jsonl")
    ]

    assert [(said.exit_code, said.stderr.count("\n"), "--out" in said.stderr) for said in answers] == [(2, 1, True)] * 2
    assert [path.name for path in taken.iterdir()] == ["run.jsonl"]
