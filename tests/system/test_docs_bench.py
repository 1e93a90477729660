"""What pages show of `esper bench run`, typed as it stands: a row, and rows of a file."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.cli.main import app
from tests.pages import typed_by

SHOWN = typed_by("tests/system/test_docs_bench.py")
ROWS = """
from esper.bench.figures import Figure
from esper.bench.row import Measurement

ROWS = [Measurement("mine", "own", lambda effort: [Figure("mine", "ours", "count", 80.0, "bytes", 1)])]
"""
TIMED = ("--gate",)
"""Asks whether targets are met: on a machine that does other work the answer may be no."""


@pytest.mark.parametrize("command", dict.fromkeys(command for block in SHOWN for command in block.commands))
def test_a_measurement_ends_with_figures(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "mine.py").write_text(ROWS)

    result = CliRunner().invoke(app, shlex.split(command)[1:])

    assert result.exit_code == 0 or (result.exit_code == 1 and any(word in command for word in TIMED)), result.output
    assert "0 rows failed" in result.output
