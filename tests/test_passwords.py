"""A run whose file names passwords: each process is given its own role's, anew at each start, and clear refusals."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from esper.bus.runs import RunRecord
from esper.cli.main import app
from esper.cli.running.plan import LocalRun, planned
from esper.errors import SettingError
from esper.leyline.keys.keyring import KEYRINGS, MasterKeyring
from esper.runtime.crew.runfile import parse
from esper.runtime.crew.unit import Plan

RUN = "toy-0a1b2c3d"
FILE = """
name = "toy"
redis = "redis://127.0.0.1:1/0"
process.exporter = {command = ["x"], user = "exporter"}
process.screen = {command = ["x"]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Passwords of the run's users."""
    written(tmp_path)
    return tmp_path / "passwords"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    master = MasterKeyring.new(time.time_ns())
    (tmp_path / "keys").mkdir()
    for keyring, roles in KEYRINGS.items():
        master.derive(RUN, roles).save(tmp_path / "keys" / f"{keyring}.json")
    return tmp_path / "keys"


def written(directory: Path, *more: str) -> None:
    assert CliRunner().invoke(app, ["acl", RUN, "--out", str(directory / "users.acl"), *more]).exit_code == 0


def plans(folder: Path) -> dict[str, Plan]:
    record = RunRecord(RUN, "toy", "redis://there:1", Path("/run/toy"), passwords=str(folder))
    tiers = planned(parse(FILE, "run.toml"), LocalRun(record, Path("/runs/toy")))
    return {plan.name: plan for tier in tiers for plan in tier}


def users(made: Mapping[str, Plan]) -> dict[str, str]:
    return {name: plan.fresh()["ESPER_REDIS_USERNAME"].removeprefix(f"{RUN}-") for name, plan in made.items()}


def up(directory: Path, *lines: str) -> Result:
    (directory / "run.toml").write_text("\n".join(('name = "toy"', f'runs_dir = "{directory}"', *lines)))
    return CliRunner().invoke(app, ["up", "-f", str(directory / "run.toml")])


def test_each_process_is_given_the_user_of_its_role(folder: Path) -> None:
    assert users(plans(folder)) == {
        **{"trainer": "worker", "regional-r0": "regional", "global": "global", "coordinator": "coordinator"},
        **{"exporter": "exporter", "screen": "observer"},
    }


def test_each_process_is_told_where_its_file_lies_to_read_it_at_each_connection(folder: Path) -> None:
    told = {name: plan.fresh()["ESPER_REDIS_PASSWORD_FILE"] for name, plan in plans(folder).items()}

    assert told["trainer"] == str(folder / f"{RUN}-worker.env")
    assert {Path(file).is_file() for file in told.values()} == {True}


def test_a_start_after_the_passwords_were_changed_has_the_new_one(folder: Path, tmp_path: Path) -> None:
    made = plans(folder)["global"]
    before = made.fresh()

    written(tmp_path, "--fresh")
    after = made.fresh()

    assert after["ESPER_REDIS_USERNAME"] == before["ESPER_REDIS_USERNAME"]
    assert f"ESPER_REDIS_PASSWORD={before['ESPER_REDIS_PASSWORD']}\n" not in (folder / f"{RUN}-global.env").read_text()
    assert f"ESPER_REDIS_PASSWORD={after['ESPER_REDIS_PASSWORD']}\n" in (folder / f"{RUN}-global.env").read_text()


def test_a_file_that_goes_away_later_leaves_a_start_with_what_was_read(folder: Path) -> None:
    made = plans(folder)["global"]
    before = made.fresh()
    (folder / f"{RUN}-global.env").unlink()

    with capture_logs() as said:
        after = made.fresh()

    assert after == before
    assert [line["event"] for line in said] == ["password.kept"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.unlink(), "expected a readable file of text (No such file or directory)"),
        (lambda path: path.chmod(0o640), "expected a file that only its owner can read (mode 0600, not 0640)"),
        (lambda path: path.write_text("PATH=x\n"), "expected ESPER_REDIS_USERNAME and ESPER_REDIS_PASSWORD alone"),
    ],
)
def test_a_file_that_does_not_do_is_named_before_anything_starts(folder: Path, spoil: Any, said: str) -> None:
    path = folder / f"{RUN}-regional.env"
    spoil(path)

    with pytest.raises(SettingError) as refused:
        plans(folder)

    assert str(refused.value).startswith(f"passwords is '{path}'; {said}")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["passwords = 'p'"], "passwords is 'p'; expected none without the URL of a Redis and keys"),
        (["redis = 'redis://u:secret@there'", "keys = '@'", "passwords = 'p'"], "redis is 'redis://there'; expected a"),
        (
            ["redis = 'redis://there'", "keys = '@'", "passwords = 'p'", "global.environment.ESPER_REDIS_PASSWORD='s'"],
            "global.environment.ESPER_REDIS_PASSWORD is '***'; expected none beside passwords",
        ),
        (["process.x = {command = ['x'], user = 'exportr'}"], "process.x.user is 'exportr'; expected one of worker, "),
    ],
)
def test_what_passwords_can_not_stand_beside_is_one_line_and_status_2(
    lines: list[str], said: str, keys: Path, tmp_path: Path
) -> None:
    result = up(tmp_path, *(line.replace("@'", f"{keys}'") if "keys" in line else line for line in lines))

    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert said in result.stderr and "secret" not in result.stderr
