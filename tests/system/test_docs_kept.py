"""What pages show of runs from a file, typed as it stands: up, ps, restart, down, and what is left to look at."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.cli.main import app
from tests.pages import ROOT, blocks, typed_by
from tests.system.processes import Esper, processes, stop
from tests.system.terminal import on_a_terminal

SHOWN = typed_by("tests/system/test_docs_kept.py")
SCRIPT = next(block.text for block in blocks(ROOT / "docs" / "tutorial.md") if block.title == "train.py")
FILE = next(block.text for block in blocks(ROOT / "README.md") if block.language == "toml")
README = "README.md"
OF_THE_BACKGROUND, OF_WHAT_IS_LEFT = ("up", "ps", "restart", "down"), ("verify", "replay", "diff")
STAYS = "esper up -f run.toml"
DETACHED = f"{STAYS} --detach"
TRAINS = "  loss "  # in the line that it prints every few seconds
DRAWN = b"LAG"


class Reader:
    """Types lines in a folder that has a model, its script and a run file."""

    def __init__(self, place: Path, patch: pytest.MonkeyPatch, name: str) -> None:
        self.place, self.runtime, self._file = place, place.parent, FILE.replace('"mine"', f'"{name}"\nready_s = 150.0')
        (place / "train.py").write_text(SCRIPT)
        patch.chdir(place)
        patch.setenv("XDG_RUNTIME_DIR", str(self.runtime))
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
        for variable in ("ESPER_RUN", "ESPER_REDIS_URL", "ESPER_KEYRING"):
            patch.delenv(variable, raising=False)
        self.said: dict[str, str] = {}

    def type(self, command: str) -> None:
        """One line of a page."""
        _, *words = shlex.split(command)
        self.said[command] = ""
        (self.place / "run.toml").write_text(self._file)
        if words[0] == "top":
            self._on_a_screen(words)
        elif ">" in words:
            subprocess.run(["bash", "-c", command], check=True, timeout=200)
        else:
            result = CliRunner().invoke(app, words)
            self.said[command] = result.output
            assert result.exit_code == 0, f"{command}\n{result.output}\n{self.said}"

    def keep(self) -> None:
        """The log of the run and its keyring, in files as a reader may have them."""
        [log] = self.place.glob("runs/*/log")
        shutil.copy(log / "run.jsonl", "demo.jsonl")
        shutil.copy(log / "keyring.json", "observer.json")

    def _on_a_screen(self, words: list[str]) -> None:
        with on_a_terminal(words, self.place, os.environ) as terminal:
            terminal.shows(DRAWN)
            terminal.press(b"q")

            assert terminal.ended() == 0

    @contextmanager
    def staying(self) -> Iterator[None]:
        """It stays in its terminal, and trains; ended from another, it ends in order and so with status 0."""
        _, *words = shlex.split(STAYS)
        (self.place / "run.toml").write_text(self._file)
        with ExitStack() as ending:
            process = Esper(self.runtime, *words, cwd=self.place)
            ending.callback(process.kill)
            process.says(TRAINS)
            yield

            assert process.ended() == 0, process.text


@pytest.fixture
def place(runtime: Path) -> Iterator[Path]:
    """A folder in which nothing stays that was started there."""
    folder = runtime / "typed"
    folder.mkdir()
    yield folder
    for pid in processes(runtime):
        stop(pid)


def lines(*kinds: str) -> list[str]:
    """What pages show of these commands, each once: of the first kind first."""
    every = [command for block in SHOWN if block.page != README for command in block.commands]
    chosen = [command for command in dict.fromkeys(every) if command.split()[1] in kinds]
    return sorted(chosen, key=lambda command: kinds.index(command.split()[1]))


def test_no_line_is_left_out() -> None:
    every = {command for block in SHOWN if block.page != README for command in block.commands}

    assert every == {*lines(*OF_THE_BACKGROUND), *lines(*OF_WHAT_IS_LEFT)}
    assert DETACHED in (command for block in SHOWN if block.page == README for command in block.commands)


def test_the_commands_of_the_readme_steer_a_run_and_leave_a_log_without_a_finding(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(place, monkeypatch, "mine")

    for command in (command for block in SHOWN if block.page == README for command in block.commands):
        reader.type(command)

    assert ": 0 findings" in reader.said["esper verify mine"]


def test_a_run_that_stays_is_restarted_in_parts_ended_verified_and_replayed_to_the_same_bits(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(place, monkeypatch, "demo")
    *looked_after, down = [command for command in lines(*OF_THE_BACKGROUND) if command not in (STAYS, DETACHED)]

    with reader.staying():
        reader.type("esper publish pause --run demo")  # else it trains meanwhile what is to be replayed
        for command in looked_after:
            reader.type(command)
        reader.type("esper publish resume --run demo")
        reader.type(down)
    reader.keep()
    for command in lines(*OF_WHAT_IS_LEFT):
        reader.type(command)

    assert "regional-r0 is ready" in reader.said["esper restart regional-r0 demo"]
    assert "is stopped" in reader.said["esper down demo"].splitlines()[-1]
    assert ": 0 findings" in reader.said["esper verify demo"]
    assert " again\n" in reader.said["esper replay demo"]
    assert "alike in all" in reader.said["esper diff demo demo"]
