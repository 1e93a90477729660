"""What `esper acl` writes, and in which order: at each moment every password that lies in a file is a good one."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.bus import connect
from esper.bus.acl import ADMIN, USERS, hashed, user_name
from esper.bus.client.credentials import completed
from esper.bus.embedded import EmbeddedRedis
from esper.bus.names import new_run_id
from esper.cli.acl import hashes_at
from esper.cli.main import app
from esper.errors import BusError
from tests.acl_kit import RUN, environment, path_of
from tests.server_kit import newer_server


def test_passwords_stay_until_fresh_ones_are_asked_for_and_go_once_these_are_in_use(tmp_path: Path) -> None:
    def written(*more: str) -> tuple[str, str]:
        result = CliRunner().invoke(app, ["acl", RUN, "--out", str(tmp_path / "users.acl"), *more])
        assert result.exit_code == 0, result.output
        return (tmp_path / "users.acl").read_text(), path_of(tmp_path, "worker").read_text()

    first, again, fresh, settings = written(), written(), written("--fresh"), written("--durable")

    assert first == again
    assert first[1] != fresh[1] == settings[1]
    was, both, now = (set(re.findall(r"#[0-9a-f]{64}", each[0])) for each in (first, fresh, settings))
    assert both == was | now and len(was & now) == 1 and len(now) == len(USERS) + 1  # the administrator's stays
    assert settings[0].count("+config|get") == len(USERS) and "config" not in fresh[0]


def folder_of_length(root: Path, length: int) -> Path:
    """A folder below it, whose path is so long."""
    while (left := length - len(str(root))) > 250:
        root /= "d" * 100
    root /= "d" * (left - 1)
    root.mkdir(parents=True)
    return root


def test_fresh_passwords_that_stop_half_way_leave_each_file_with_one_that_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = os.pathconf(tmp_path, "PC_PATH_MAX") - 1
    aside = len(f"/.{user_name(RUN, 'worker')}.env.0a1b2c3d")  # fits, and that of a longer user's name does not
    narrow = folder_of_length(tmp_path, longest - aside)
    with monkeypatch.context() as there:
        there.chdir(narrow)  # from here every name fits
        words = ["acl", RUN, "--out", str(tmp_path / "users.acl"), "--passwords"]
        assert CliRunner().invoke(app, [*words, "."]).exit_code == 0
        before = {path.name: path.read_text() for path in Path().iterdir()}

        stopped = CliRunner().invoke(app, [*words, str(narrow), "--fresh"])

        after = {path.name: path.read_text() for path in Path().iterdir()}
    assert (stopped.exit_code, len(stopped.stderr.splitlines())) == (2, 1)
    assert "expected a place to write (File name too long)" in stopped.stderr
    assert before.keys() == after.keys() and [name for name in before if before[name] != after[name]] == [
        f"{user_name(RUN, 'worker')}.env"
    ]
    lines = {line.split()[1]: line for line in (tmp_path / "users.acl").read_text().splitlines()}
    for told in (before, after):
        for name, password in (re.findall(r"=(.+)", text) for text in told.values()):
            assert hashed(password) in lines[name]


def test_an_acl_file_that_can_not_be_replaced_leaves_the_passwords_as_they_are(tmp_path: Path) -> None:
    out = tmp_path / ("u" * 250)  # a name for which there is no room beside it
    out.write_text("user someone on >word ~* +@all\n")
    folder = tmp_path / "passwords"
    folder.mkdir()

    result = CliRunner().invoke(app, ["acl", RUN, "--out", str(out)])

    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert list(folder.iterdir()) == []


async def let_in(url: str, told: dict[str, str]) -> bool:
    async with connect.writer(completed(url, told)) as redis:
        try:
            return bool(await redis.execute_command("PING"))
        except BusError:
            return False


def test_a_server_that_loads_the_file_first_knows_every_password_that_is_handed_out(short_directory: Path) -> None:
    directory = short_directory / "load"
    directory.mkdir(exist_ok=True)
    options = {"aclfile": str(directory / "users.acl")}

    def written(*more: str, out: str = "users.acl") -> tuple[int, dict[str, dict[str, str]]]:
        words = ["acl", RUN, "--out", str(directory / out), "--passwords", str(directory / "passwords"), *more]
        result = CliRunner().invoke(app, words)
        return result.exit_code, {role: environment(path_of(directory, role)) for role in (*USERS, ADMIN)}

    _, first = written()
    with EmbeddedRedis(directory / "data", binary=newer_server(), options=options) as served:

        def good(passwords: dict[str, dict[str, str]]) -> set[bool]:
            return {asyncio.run(let_in(served.url, told)) for told in passwords.values()}

        fresh_status, fresh = written("--fresh", "--load", served.url)
        both = [good(first), good(fresh)]
        last_status, _ = written("--load", served.url)
        now = [good(first), good(fresh)]
        elsewhere, kept = written("--fresh", "--load", served.url, out="another.acl")

    assert (fresh_status, last_status, elsewhere) == (0, 0, 2)
    assert not {*map(str, first.values())} & {*map(str, fresh.values())} and kept == fresh
    assert (both, now) == ([{True}, {True}], [{False}, {True}])


@pytest.mark.parametrize("protocol", [2, 3])
async def test_the_passwords_that_a_server_knows_are_read_by_either_protocol(redis_url: str, protocol: int) -> None:
    async with connect.writer(f"{redis_url.partition('?')[0]}?protocol={protocol}") as redis:
        await redis.execute_command("ACL", "SETUSER", "known", "on", ">secret")
        try:
            known, unknown = await hashes_at(redis, "known"), await hashes_at(redis, "nobody")
        finally:
            await redis.execute_command("ACL", "DELUSER", "known")

    assert (known, unknown) == ({hashed("secret")}, set())


def test_the_longest_id_that_a_run_is_given_has_users(tmp_path: Path) -> None:
    run = new_run_id("a" * 40)

    result = CliRunner().invoke(app, ["acl", run, "--out", str(tmp_path / "users.acl")])

    assert result.exit_code == 0
    assert (tmp_path / "passwords" / f"{run}-worker.env").exists()


def test_a_pipe_is_refused_at_once_and_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "users.acl")

    result = CliRunner().invoke(app, ["acl", RUN, "--out", str(tmp_path / "users.acl")])

    assert result.exit_code == 2
    assert "expected a file, and no pipe" in " ".join(result.stderr.split())
    assert [path.name for path in tmp_path.iterdir() if path.is_fifo()] == ["users.acl"]
    assert not (tmp_path / "passwords").exists()


def test_a_file_that_is_no_acl_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "redis.conf").write_text("port 6379\n")

    result = CliRunner().invoke(app, ["acl", RUN, "--out", str(tmp_path / "redis.conf")])

    assert result.exit_code == 2
    assert "expected an ACL file, whose lines begin with user; one is 'port 6379'" in " ".join(result.stderr.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["redis.conf"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "users.acl", "--passwords", "taken", "--fresh"], "--passwords is 'taken'; expected a folder"),
        (["--out", "users.acl", "--passwords", "/proc/esper"], "--passwords is '/proc/esper'; expected a folder"),
        (["--out", "nowhere/users.acl", "--passwords", "p"], "--out is 'nowhere/users.acl'; expected a place to write"),
    ],
)
def test_a_place_that_cannot_be_written_to_is_one_clear_error(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")

    result = CliRunner().invoke(app, ["acl", RUN, *words])

    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert said in result.stderr
    assert not (tmp_path / "users.acl").exists()


def test_a_file_that_others_may_not_read_stays_so(tmp_path: Path) -> None:
    out = tmp_path / "users.acl"
    out.write_text("user someone on >word ~* +@all\n")
    out.chmod(0o640)

    assert CliRunner().invoke(app, ["acl", RUN, "--out", str(out)]).exit_code == 0

    assert out.stat().st_mode & 0o777 == 0o640
    assert "user someone on >word ~* +@all" in out.read_text()
