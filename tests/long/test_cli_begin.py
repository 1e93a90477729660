"""Ctrl-C ends `esper` without a word also where none of its commands runs yet, or any more."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = """
import atexit, os, signal, sys

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {moment!r}:
            interrupt()

sys.meta_path.insert(0, Interrupting())
if {moment!r} == "its end":
    atexit.register(interrupt)
if {ignores}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.argv = ["esper", "--help"]
from {module} import {attribute}
sys.exit({attribute}())
"""


def begun(moment: str, *, ignores: bool = False) -> subprocess.CompletedProcess[str]:
    """What the installed `esper --help` ends with, where Ctrl-C comes when this module is imported."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    module, attribute = settings["project"]["scripts"]["esper"].split(":")
    program = PROGRAM.format(moment=moment, ignores=ignores, module=module, attribute=attribute)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=150)


@pytest.mark.parametrize("moment", ["typer", "esper.errors", "esper.runtime", "its end"])
def test_ctrl_c_beside_a_command_ends_it_without_a_word(moment: str) -> None:
    ended = begun(moment)

    assert (ended.returncode, ended.stderr) == (130, "")


def test_ctrl_c_is_ignored_where_it_was_when_esper_was_started() -> None:
    ended = begun("typer", ignores=True)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Usage: esper" in ended.stdout


def test_the_package_runs_as_the_command() -> None:
    words = [sys.executable, "-P", "-m", "esper", "--help"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=150)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Steer a PyTorch training run while it runs." in ended.stdout
