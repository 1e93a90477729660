"""The register of live runs."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from esper.bus import runs
from esper.bus.connect import Redis
from esper.bus.embedded import EmbeddedRedis
from esper.errors import SettingError, UnknownRunError

OWNER = """
import sys
from esper.bus import runs
held = runs.register("digits", started_ns=1)
print(held.record.run_id, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def runtime_directory(short_directory: Path, monkeypatch: pytest.MonkeyPatch, run_id: str) -> Path:
    """A runtime directory of the test's own."""
    directory = short_directory / run_id
    directory.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    return directory


def test_a_run_is_found_by_its_name_and_by_its_id() -> None:
    with runs.register("digits", started_ns=1) as record:
        assert runs.resolve("digits") == runs.resolve(record.run_id) == record
        assert record.keyring("worker") == record.directory / "keys" / "worker.json"
        assert record.keyring("worker").parent.stat().st_mode & 0o077 == 0


def test_a_name_stands_for_its_newest_run() -> None:
    with runs.register("digits", started_ns=2) as newest, runs.register("digits", started_ns=1) as older:
        assert runs.resolve("digits") == newest
        assert runs.resolve(older.run_id) == older
        assert runs.list_live() == [newest, older]


def test_a_server_started_in_its_directory_has_its_url() -> None:
    with runs.register("digits", started_ns=1) as record, EmbeddedRedis(record.directory) as server:
        assert server.url == record.url


def test_a_run_that_goes_on_is_none_whose_id_leads_elsewhere(runtime_directory: Path) -> None:
    with pytest.raises(SettingError, match=r"run is '\.\./elsewhere'; expected an id of 1 to 49 letters"):
        runs.register("digits", started_ns=1, run_id="../elsewhere")

    assert not (runtime_directory.parent / "elsewhere").exists()


def test_a_password_is_for_a_server_outside_also_where_that_listens_on_a_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ESPER_REDIS_PASSWORD", "secret")
    with (
        runs.register("own", started_ns=1) as own,
        runs.register("outside", started_ns=1, url="unix:///run/redis.sock") as outside,
    ):
        assert (own.reach, outside.reach) == (own.url, "unix://:secret@/run/redis.sock")


def test_an_unknown_run_is_refused_with_the_ones_there_are() -> None:
    with runs.register("digits", started_ns=1) as record, pytest.raises(UnknownRunError) as refused:
        runs.resolve("letters")

    assert str(refused.value) == f"no live run is called 'letters'; live runs: {record.run_id}"


def test_a_run_that_ended_is_gone_with_its_keys() -> None:
    with runs.register("digits", started_ns=1) as record:
        record.keyring("worker").write_text("secret")

    assert runs.list_live() == []
    assert not record.directory.exists()


def test_a_run_whose_process_was_killed_is_forgotten(runtime_directory: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdin is not None
    assert owner.stdout is not None
    run_id = owner.stdout.readline().strip()
    while_alive = runs.resolve(run_id)

    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdin.close()
    owner.stdout.close()

    assert while_alive.run_id == run_id
    assert runs.list_live() == []
    assert list((runtime_directory / "esper").iterdir()) == []


def test_a_cleaner_of_old_files_leaves_the_directory_of_a_live_run_alone() -> None:
    with runs.register("digits", started_ns=1) as record:
        assert runs.is_held(record.directory)  # as systemd-tmpfiles looks, by tmpfiles.d(5)
    other = record.directory.parent / "other"
    other.mkdir()
    assert not runs.is_held(other)


def test_a_directory_open_to_others_is_refused(runtime_directory: Path) -> None:
    (runtime_directory / "esper").mkdir(mode=0o755)
    os.chmod(runtime_directory / "esper", 0o755)

    with pytest.raises(SettingError, match="others cannot enter"):
        runs.list_live()


def test_what_a_killed_start_left_does_not_keep_a_run_from_starting(runtime_directory: Path) -> None:
    (runtime_directory / "esper" / ".digits-0a1b2c3d" / "keys").mkdir(mode=0o700, parents=True)
    (runtime_directory / "esper").chmod(0o700)

    with runs.register("digits", started_ns=1, run_id="digits-0a1b2c3d") as record:
        assert runs.resolve("digits") == record


def test_one_that_another_process_lists_in_the_same_moment_is_refused(runtime_directory: Path) -> None:
    (runtime_directory / "esper").mkdir(mode=0o700)
    (runtime_directory / "esper" / "digits-0a1b2c3d").touch()  # there, and not seen when it was looked for

    with pytest.raises(SettingError, match="expected a run that nobody keeps going yet"):
        runs.register("digits", started_ns=1, run_id="digits-0a1b2c3d")

    assert [path.name for path in (runtime_directory / "esper").iterdir()] == ["digits-0a1b2c3d"]


def test_a_runtime_directory_that_is_full_is_one_line_and_keeps_nothing(runtime_directory: Path) -> None:
    home, descriptors = runs.user_directory(), len(os.listdir("/proc/self/fd"))
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # a write fails then as it does on a full disk
    try:
        with pytest.raises(SettingError) as refused:
            runs.register("demo", started_ns=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))

    assert str(refused.value) == f"runtime directory is '{home}'; expected one with room for a run (File too large)"
    assert (list(home.iterdir()), len(os.listdir("/proc/self/fd"))) == ([], descriptors)


def test_a_runtime_directory_too_deep_for_a_socket_is_refused(
    runtime_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = runtime_directory / ("x" * 80)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))

    with pytest.raises(SettingError, match="at most 100 bytes"):
        runs.register("digits", started_ns=1)


async def test_a_run_on_an_outside_redis_is_found_by_name_and_id(redis: Redis, run_id: str) -> None:
    name = run_id.replace("test-", "outside-")
    await runs.announce_outside(redis, name, run_id)

    by_name, by_id = await runs.resolve_outside(redis.url, name), await runs.resolve_outside(redis.url, run_id)
    await runs.forget_outside(redis, name, "another-run")
    kept = await runs.resolve_outside(redis.url, name)
    await runs.forget_outside(redis, name, run_id)

    assert by_name == by_id == kept == run_id
    with pytest.raises(UnknownRunError):
        await runs.resolve_outside(redis.url, name)
