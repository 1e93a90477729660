"""Writes to a terminal or a pipe from a thread of its own: one that is stopped, full or gone holds nobody up."""

from __future__ import annotations

import io
import os
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TextIO, cast

from rich.console import Console

MOST_WAITING = 1_000
"""Texts that wait for a reader who is slow, or has stopped the terminal by Ctrl-S; it misses the others."""
LAST_WORDS_S = 1.0


class Terminal(io.TextIOBase):
    """What is written and flushed here goes to a descriptor as soon as that takes it. None of its errors comes back.

    `is_ours`: the descriptor is closed once the last of it is out, and not before.
    """

    def __init__(self, descriptor: int, *, is_ours: bool = False) -> None:
        self._descriptor, self._is_ours, self._text = descriptor, is_ours, ""
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._pass_on, name="esper-terminal", daemon=True)
        self._thread.start()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # of the library it is an attribute
        return "utf-8"

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._text += text
        return len(text)

    def flush(self) -> None:
        """What was written since the last time goes as one: a line without its end would run into the next."""
        text, self._text = self._text.encode(errors="replace"), ""
        if text and not self._waiting.full():
            self._waiting.put_nowait(text)

    def finish(self, within_s: float = LAST_WORDS_S) -> None:
        """Let out what still waits, where somebody reads it in this time."""
        self.flush()
        until = time.monotonic() + within_s
        with suppress(queue.Full):
            self._waiting.put(None, timeout=within_s)
            self._thread.join(max(0.0, until - time.monotonic()))

    def _pass_on(self) -> None:
        while (said := self._waiting.get()) is not None:
            try:
                while said:
                    said = said[os.write(self._descriptor, said) :]
            except OSError:  # closed, or its reader is gone; another write may be taken again
                continue
        if self._is_ours:
            os.close(self._descriptor)


@contextmanager
def terminal(descriptor: int, *, is_ours: bool = False) -> Iterator[Terminal]:
    """For as long as the block runs, and a second more."""
    made = Terminal(descriptor, is_ours=is_ours)
    try:
        yield made
    finally:
        made.finish()


@contextmanager
def console(stream: TextIO) -> Iterator[Console]:
    """That holds nobody up, and ends nobody."""
    with terminal(stream.fileno()) as output:
        yield Console(file=cast(IO[str], output))
