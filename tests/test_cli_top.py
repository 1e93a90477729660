"""`esper top` before it draws: what it needs, and what it says where that is missing."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from esper.cli.main import app


def test_without_a_terminal_it_says_what_is_for_scripts() -> None:
    result = CliRunner().invoke(app, ["top", "--run", "demo"])

    assert result.exit_code == 2
    assert result.stderr == (
        "esper: stdout is 'no terminal'; expected a terminal; `esper status --json` is for scripts\n"
    )


def test_what_is_refused_loads_no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "esper.top.app", raising=False)

    CliRunner().invoke(app, ["top", "--run", "demo"])

    assert "esper.top.app" not in sys.modules


def test_two_names_of_a_run_are_one_too_many() -> None:
    result = CliRunner().invoke(app, ["top", "mine", "--run", "demo"])

    assert result.exit_code == 2
    assert result.stderr == "esper: --run is 'demo'; expected the same as RUN, 'mine', or one of the two\n"


def test_a_missing_extra_is_one_sentence_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual.app", None)
    monkeypatch.delitem(sys.modules, "esper.top.app", raising=False)
    monkeypatch.setitem(sys.modules, "textual", None)

    result = CliRunner().invoke(app, ["top", "--run", "demo"])

    assert result.exit_code == 2
    assert result.stderr == "esper: esper top needs the extra 'top': pip install 'esper[top]'\n"
