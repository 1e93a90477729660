"""Texts of a run are others': wherever a person meets one, it moves no cursor, fills no clipboard, is no markup."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from rich.console import Console
from typer.testing import CliRunner

from esper.cli import completing, doctor, operate, replay, sites, up
from esper.cli.main import app, refuse
from esper.cli.output import dashboard
from esper.cli.output.quiet import log_to
from esper.kasmina.slots.survey import SiteView
from esper.runtime import logging
from esper.runtime.operations.findings import Finding
from esper.runtime.settings import Settings
from esper.view.picture import Picture
from tests.sealed import RUN
from tests.view_kit import Stage, beat, seed

HOSTILE = "[red]\x1b]52;c;cm0x\x07\0\x9b2J"
SHOWN = "[red]?]52;c;cm0x???2J"


def shown(drawn: object) -> str:
    """As a terminal gets it that takes no colours."""
    console = Console(width=200, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(drawn)
    return captured.get()


def picture() -> Picture:
    told = Picture(RUN)
    told.note(beat("worker-0", 0, seed(HOSTILE, Stage.SEED_STAGE_TRAINING, site=HOSTILE), region=HOSTILE))
    return told


def ps(name: str) -> str:
    row = {"name": name, "role": "", "state": "", "pid": None, "restarts": 0, "rss_bytes": 0, "last_end": None}
    return "\n".join(operate.table([row]))


WAYS: dict[str, Callable[[], str]] = {
    "a live view": lambda: shown(dashboard.view(picture(), 1.0, "running")),
    "a line of a live view": lambda: dashboard.line(picture(), 1.0, "running"),
    "a finding": lambda: doctor.line(Finding("redis", "warn", HOSTILE, "", HOSTILE)),
    "a process's end": lambda: up.sentence({"event": "redis.not_started", "why": HOSTILE}),
    "processes": lambda: ps(HOSTILE),
    "a replay": lambda: replay.told(replay.Result(HOSTILE, "", 0)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_text_is_shown_as_letters(way: str) -> None:
    text = WAYS[way]()

    assert SHOWN in text
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_a_site_is_listed_as_letters(capsys: pytest.CaptureFixture[str]) -> None:
    sites.show(HOSTILE, [SiteView(HOSTILE, HOSTILE, 1, 1)], seen=False)

    assert capsys.readouterr().out.count(SHOWN) == 3


def test_an_error_is_told_as_letters(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        refuse(HOSTILE)

    assert capsys.readouterr().err == f"esper: {SHOWN}\n"


@pytest.mark.parametrize("name", [HOSTILE, "$(evil)", "a b", "`evil`", "a;evil", "*", "--yes", "a'b"])
def test_a_shell_is_offered_no_name_that_it_would_evaluate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(completing.SOURCES, "seed", lambda run: [name, "s0"])
    asked = {"COMP_WORDS": "esper publish cull ", "COMP_CWORD": "3", "_ESPER_COMPLETE": "complete_bash"}

    assert CliRunner().invoke(app, [], prog_name="esper", env=asked).stdout == "s0\n"


@pytest.mark.parametrize("command", ["acl toy-00000000 --out", "keys new"])
def test_a_path_that_is_no_utf_8_is_told_with_escapes(command: str, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))

    result = CliRunner().invoke(app, [*command.split(), str(path)])

    assert (result.exit_code, f"{tmp_path}/caf\\udce9: " in result.output) == (0, True)


@pytest.fixture
def own_log() -> Iterator[None]:
    """The forms of logs of this process are the test's alone."""
    kept, was_set = structlog.get_config(), structlog.is_configured()
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    if was_set:
        structlog.configure(**kept)


@pytest.mark.usefixtures("own_log")
def test_a_worker_s_log_for_people_holds_letters(capsys: pytest.CaptureFixture[str]) -> None:
    logging.configure(Settings(log="console"), region=HOSTILE)

    logging.get_logger().warning("bus.refused", why=HOSTILE, said=f"{HOSTILE} \n")

    told = capsys.readouterr().err
    assert told.count("\n") == 1 and told.rstrip("\n").isprintable()
    assert (told.count(repr(HOSTILE)), told.count(repr(f"{HOSTILE} \n"))) == (2, 1)


@pytest.mark.usefixtures("own_log")
def test_a_supervisor_s_log_holds_letters(tmp_path: Path) -> None:
    with log_to(tmp_path / "up.log"):
        structlog.get_logger().warning("bus.refused", why=HOSTILE)

    assert repr(HOSTILE) in (tmp_path / "up.log").read_text()


@pytest.mark.parametrize("command", ["checkpoints list", "keys new", "verify r --runs-dir"])
def test_a_path_that_is_too_long_is_one_line(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "x" * 256])

    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "expected one as short as this system takes" in result.stderr
