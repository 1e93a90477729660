"""`esper top` on a real terminal: it draws, gives the terminal back when told to end, and says where one is missing."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios

import pytest

from esper.cli.main import INTERRUPTED
from tests.scripted import ScriptedRun

pytestmark = pytest.mark.system
SIZE = struct.pack("HHHH", 24, 80, 0, 0)
DRAWN, GIVEN_BACK = b"LAG", b"\x1b[?1049l"
COLOUR = re.compile(rb"\x1b\[[0-9;]*\b(?:3[0-7]|4[0-7]|9[0-7]|10[0-7]|[34]8;[25];[0-9;]*)m")


def read_until(terminal: int, wanted: bytes) -> bytes:
    """What is written to a terminal, up to and with this; all of it where it does not come."""
    written = b""
    while wanted not in written:
        try:
            more = os.read(terminal, 65_536)
        except OSError:  # nobody has it open any more
            break
        written += more
    return written


async def test_a_signal_ends_it_and_the_terminal_is_as_it_was(run: ScriptedRun) -> None:
    await run.beat(3)
    terminal, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, SIZE)
    before = termios.tcgetattr(screen)
    environment = {**os.environ, "TERM": "vt100", "NO_COLOR": "1"}
    words = [sys.executable, "-P", "-m", "esper.cli.main", "top", run.name]

    with subprocess.Popen(words, stdin=screen, stdout=screen, stderr=screen, env=environment) as top:
        drawn = await asyncio.to_thread(read_until, terminal, DRAWN)
        top.send_signal(signal.SIGTERM)
        drawn += await asyncio.to_thread(read_until, terminal, GIVEN_BACK)
        status = await asyncio.to_thread(top.wait)

    assert DRAWN in drawn and GIVEN_BACK in drawn
    assert (status, termios.tcgetattr(screen)) == (INTERRUPTED, before)
    assert COLOUR.findall(drawn) == []
    assert drawn.isascii()
    os.close(screen)
    os.close(terminal)


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
