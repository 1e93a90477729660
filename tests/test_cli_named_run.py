"""Every command takes the run that it is about as RUN and as --run; of whose log there is, also by ESPER_RUN."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.bus import runs
from esper.cli.main import app
from tests.log_kit import toy

NO_RUN = "esper: no live run is called 'nowhere'; live runs: none\n"
LIVE = ("status", "ps", "down", "restart", "tail", "web")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("ESPER_RUN", raising=False)


@pytest.mark.parametrize("named", [["nowhere"], ["--run", "nowhere"]])
@pytest.mark.parametrize("command", LIVE)
def test_a_live_run_is_named_either_way(command: str, named: list[str]) -> None:
    words = [command, *(["regional"] if command == "restart" else []), *named]

    said = CliRunner().invoke(app, words)

    assert (said.exit_code, said.output) == (2, NO_RUN)


@pytest.mark.parametrize("named", ["mine", "mine-0a1b2c3d"])
def test_of_a_run_that_is_not_live_here_it_is_said_where_it_is_told_what_became_of_it(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, run in enumerate(("mine-0a1b2c3d", "mine-older", "mines-0a1b2c3d")):
        log = Path("runs") / run / "logs" / "up.log"
        log.parent.mkdir(parents=True)
        log.touch()
        os.utime(log, (1_000 - number, 1_000 - number))

    said = CliRunner().invoke(app, ["ps", named])

    told = "; what became of one says runs/mine-0a1b2c3d/logs/up.log\n"
    assert (said.exit_code, said.output) == (2, f"esper: no live run is called {named!r}; live runs: none{told}")


def test_of_a_run_that_goes_on_below_another_runtime_directory_it_is_not_said_that_it_has_ended(
    tmp_path: Path, short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    with runs.register("apart", started_ns=1) as record:
        log = Path("runs") / record.run_id / "logs" / "up.log"
        log.parent.mkdir(parents=True)
        log.touch()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        said = CliRunner().invoke(app, ["ps", "apart"])

    assert (said.exit_code, "ended" in said.output) == (2, False)
    assert said.output.endswith(f"; what became of one says {log}\n")


@pytest.mark.parametrize("how", ["RUN", "--run", "ESPER_RUN"])
@pytest.mark.parametrize("command", ["verify", "log", "audit", "report"])
def test_a_log_is_named_in_three_ways(command: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = toy().save(tmp_path / "run.jsonl")
    monkeypatch.chdir(tmp_path)
    if how == "ESPER_RUN":
        monkeypatch.setenv("ESPER_RUN", str(log))
    named = {"RUN": [str(log)], "--run": ["--run", str(log)], "ESPER_RUN": []}[how]

    said = CliRunner().invoke(app, [command, *named])

    assert said.exit_code == 0, said.output


@pytest.mark.parametrize("command", ["verify", "log", "audit", "report", "replay"])
def test_a_command_that_no_run_is_named_to_says_how(command: str) -> None:
    said = CliRunner().invoke(app, [command])

    told = "esper: run is not set; expected the name of a run or of a file, as RUN, by --run or ESPER_RUN\n"
    assert (said.exit_code, said.output) == (2, told)


def test_two_names_are_one_too_many() -> None:
    said = CliRunner().invoke(app, ["status", "mine", "--run", "yours"])

    assert said.exit_code == 2
    assert said.output == "esper: --run is 'yours'; expected the same as RUN, 'mine', or one of the two\n"
