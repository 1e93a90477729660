"""The help of every command: one line of what it does, an example, its exit statuses, and JSON where it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.cli.main import app, load
from tests.cli_kit import every_command

README = Path(__file__).resolve().parent.parent.parent / "README.md"
# What prints nothing of its own: a file, a page, a screen or an endpoint is what it makes.
MAKES_SOMETHING_ELSE = {
    *("up", "top", "web", "report", "acl", "bench report", "bench forget"),
    *("export prometheus", "export tensorboard", "export jsonl"),
}


def test_every_command_says_what_it_does_in_one_line() -> None:
    firsts = {path: (command.help or "").strip().partition("\n")[0] for path, command in every_command().items()}

    assert len(firsts) > 50
    assert [path for path, first in firsts.items() if not 10 <= len(first) <= 170] == []


def test_every_command_has_an_example_of_its_own() -> None:
    told = {path: f"{command.help}\n{command.epilog}" for path, command in every_command().items()}

    assert [path for path, text in told.items() if not re.search(rf"Examples?:\s.*esper {path}\b", text, re.S)] == []


def test_every_command_says_what_its_exit_status_means() -> None:
    told = re.compile("Exit status: 0 (done|ended in order)")
    without = [path for path, command in every_command().items() if not told.search(command.epilog or "")]

    assert without == []


def test_readme_names_the_commands_that_take_their_run_behind_them_alone() -> None:
    positional = {
        path: {one.name for one in command.params if one.required and one.param_type_name == "argument"}
        for path, command in every_command().items()
    }

    [told] = re.findall(r"\. ([^.]*) take it only after the command\.", README.read_text())
    assert set(re.findall("`(.*?)`", told)) == {path for path, names in positional.items() if "run" in names} | {"diff"}


def test_every_command_that_prints_prints_json_where_it_is_asked() -> None:
    plain = {path for path, command in every_command().items() if "--json" not in str([p.opts for p in command.params])}

    assert plain - MAKES_SOMETHING_ELSE == set()


def test_every_option_of_a_command_is_explained() -> None:
    silent = [
        f"{path} {parameter.name}"
        for path, command in every_command().items()
        for parameter in command.params
        if not getattr(parameter, "help", None)
    ]

    assert silent == []


@pytest.mark.parametrize("path", ["", "publish", "publish cull", "dead", "dead purge", "status"])
def test_help_is_printed_for_a_person(path: str) -> None:
    result = CliRunner().invoke(app, [*path.split(), "--help"])

    assert result.exit_code == 0
    assert "Usage: " in result.stdout and "Traceback" not in result.output


@pytest.mark.parametrize(
    ("line", "unwanted"),
    [("--help", ["asyncio", "google", "numpy", "redis", "torch"]), ("keys list none.json", ["redis", "rich", "torch"])],
)
def test_a_command_costs_no_import_that_others_need(line: str, unwanted: list[str]) -> None:
    script = (
        "import sys; from esper.cli.main import app\n"
        f"try: app({line.split()})\n"
        "except SystemExit: pass\n"
        f"print(*sorted({set(unwanted)} & sys.modules.keys()))\n"
    )

    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=150)

    assert answer.stdout.splitlines()[-1] == ""


@pytest.mark.parametrize(
    ("line", "status"),
    [("status --help", 0), ("doctor --redis redis://127.0.0.1:1", 1), ("verify nowhere/no.jsonl", 2)],
)
def test_a_command_ends_with_the_status_that_its_help_names(line: str, status: int) -> None:
    assert CliRunner().invoke(app, line.split()).exit_code == status


def test_a_command_that_is_called_again_is_not_made_again() -> None:
    assert load("publish") is load("publish")
