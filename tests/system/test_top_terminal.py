"""`esper top` on a real terminal: it draws, gives the terminal back when told to end, and says where one is missing."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from esper.cli.main import INTERRUPTED
from tests.scripted import ScriptedRun
from tests.system.terminal import on_a_terminal

DRAWN, GIVEN_BACK = b"LAG", b"\x1b[?1049l"
COLOUR = re.compile(rb"\x1b\[[0-9;]*\b(?:3[0-7]|4[0-7]|9[0-7]|10[0-7]|[34]8;[25];[0-9;]*)m")


async def test_a_signal_ends_it_and_the_terminal_is_as_it_was(run: ScriptedRun, tmp_path: Path) -> None:
    await run.beat(3)

    with on_a_terminal(["top", run.name], tmp_path, os.environ) as terminal:
        await asyncio.to_thread(terminal.shows, DRAWN)
        terminal.send(signal.SIGTERM)
        status = await asyncio.to_thread(terminal.ended)

        assert (status, terminal.is_as_it_was) == (INTERRUPTED, True)
    assert GIVEN_BACK in terminal.written
    assert COLOUR.findall(terminal.written) == []
    assert terminal.written.isascii()


def read_until(terminal: int, wanted: bytes) -> bytes:
    """What is written to a terminal, up to and with this; all of it where it does not come."""
    written = b""
    while wanted not in written and (more := os.read(terminal, 65_536)):
        written += more
    return written


@pytest.mark.parametrize("missing", ["stdin", "stderr"])
def test_without_a_terminal_for_the_keys_or_for_the_screen_it_says_so(missing: str) -> None:
    terminal, screen = pty.openpty()
    stdin, stderr = (subprocess.PIPE if missing == name else screen for name in ("stdin", "stderr"))
    words = [sys.executable, "-P", "-m", "esper.cli.main", "top", "nowhere"]

    with subprocess.Popen(words, stdin=stdin, stdout=screen, stderr=stderr) as top:
        said = read_until(top.stderr.fileno() if top.stderr else terminal, b"scripts")

    assert f"{missing} is 'no terminal'" in said.decode()
    assert top.returncode == 2
    os.close(screen)
    os.close(terminal)
