"""Output that nobody reads to its end ends a command quietly, as `esper tail | head` does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from esper.leyline.keyring import MasterKeyring

PROGRAM = "from esper.cli.main import app; app(prog_name='esper')"


@pytest.mark.parametrize(
    ("words", "when"),
    [(["keys", "list"], "as it is written"), (["keys", "list"], "at the end"), (["--help"], "at the end")],
)
def test_a_closed_pipe_is_no_failure_of_the_command(words: list[str], when: str, tmp_path: Path) -> None:
    MasterKeyring.new(time.time_ns()).save(tmp_path / "master.json")
    reading, writing = os.pipe()
    os.close(reading)

    ended = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, *words, *[str(tmp_path / "master.json")] * (len(words) > 1)],
        env={**os.environ, "PYTHONUNBUFFERED": "1" if when == "as it is written" else ""},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(writing)

    assert (ended.returncode, ended.stderr) == (0, "")
