"""`esper top` on a terminal of 80 columns by 24 rows, and all that is written to it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SIZE = struct.pack("HHHH", 24, 80, 0, 0)
PATIENCE_S = 200.0


class Terminal:
    """A command that believes to be alone on a screen."""

    def __init__(self, words: Sequence[str], place: Path, environment: Mapping[str, str]) -> None:
        self.written = b""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, SIZE)
        self._before = termios.tcgetattr(self._ours)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "esper.cli.main", *words],
            cwd=place,
            env={**environment, "TERM": "vt100", "NO_COLOR": "1"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def shows(self, wanted: bytes) -> None:
        """Read on until this was written."""
        deadline = time.monotonic() + PATIENCE_S
        while wanted not in self.written:
            ready = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))[0]
            assert ready and self._more(), f"it never showed {wanted!r}: {self.written!r}"

    @property
    def is_as_it_was(self) -> bool:
        """Whether lines, echo and all else are set as before the command."""
        return termios.tcgetattr(self._ours) == self._before

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def ended(self) -> int:
        """Read on until it has ended; its exit status."""
        deadline = time.monotonic() + PATIENCE_S
        while select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))[0] and self._more():
            pass
        return self._process.wait(max(0.1, deadline - time.monotonic()))

    def _more(self) -> bytes:
        try:
            more = os.read(self._ours, 65_536)
        except OSError:  # nobody has it open any more
            more = b""
        self.written += more
        return more

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


@contextmanager
def on_a_terminal(words: Sequence[str], place: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """A command that does not outlive this."""
    terminal = Terminal(words, place, environment)
    try:
        yield terminal
    finally:
        terminal.close()
