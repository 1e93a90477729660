"""The tutorial, typed as it stands, in an empty folder."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.cli.main import app
from tests.pages import ROOT, blocks
from tests.system.processes import processes, stop

TUTORIAL = ROOT / "docs" / "tutorial.md"


@pytest.fixture
def folder(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty one, with the files that the page says to save; nothing that was started there stays."""
    for block in blocks(TUTORIAL):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    for variable in ("ESPER_RUN", "ESPER_REDIS_URL", "ESPER_KEYRING"):
        monkeypatch.delenv(variable, raising=False)
    yield tmp_path
    for pid in processes(runtime):
        stop(pid)


def test_every_command_of_the_tutorial_works_in_its_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [block for block in blocks(TUTORIAL) if block.language == "sh"]

    said = {}
    for command in (command for block in shown for command in block.commands):
        program, *words = shlex.split(command)
        if program == "export":
            monkeypatch.setenv(*words[0].split("=", 1))
            continue
        assert program == "esper", command
        result = CliRunner().invoke(app, words)
        said[command] = result.output
        assert result.exit_code == 0, f"{command}\n{result.output}\n{said}"

    assert [block for block in shown if block.not_run] == []
    assert "-> FOSSILIZED" in said["esper publish fossilize s0 --attempts 3"]
    assert "-> EMBARGOED" in said["esper publish cull s1"]
    assert ": 0 findings" in said["esper verify tour"]
    assert " again\n" in said["esper replay tour"]
