"""Ranks of a process group, each a process forked off the test's; one that dies is told with its last words."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")
PATIENCE_S = 120.0


class Forked(Generic[T]):
    """A process that says what `body()` returns, and lives until it is ended: others may still read what it holds.

    It ends with the test's process, too.
    """

    def __init__(self, body: Callable[[], T], errors: Path) -> None:
        context: Any = get_context("fork")
        self._errors = errors
        self._line, its = context.Pipe()
        self._process = context.Process(target=_run, args=(body, its, errors), daemon=True)
        self._process.start()
        its.close()  # or nobody would notice that it died

    def said(self) -> T:
        """AssertionError with what it wrote to its standard error, where it dies or is silent."""
        if not self._line.poll(PATIENCE_S):
            os.kill(self._process.pid, signal.SIGABRT)  # it writes down where it stands
            raise AssertionError(self._told("was silent"))
        try:
            said: T = self._line.recv()
        except EOFError:
            raise AssertionError(self._told("died")) from None
        return said

    def end(self) -> None:
        self._process.kill()
        self._process.join()

    def _told(self, how: str) -> str:
        self._process.join(10.0)
        return f"it {how}, and ended with {self._process.exitcode}:\n{self._errors.read_text()}"


@contextmanager
def forked(bodies: Sequence[Callable[[], T]], folder: Path) -> Iterator[list[Forked[T]]]:
    """So many ranks, none of which outlives the context."""
    ranks = [Forked(body, folder / f"stderr-{number}") for number, body in enumerate(bodies)]
    try:
        yield ranks
    finally:
        for each in ranks:
            each.end()


def said_by_all(bodies: Sequence[Callable[[], T]], folder: Path) -> list[T]:
    """By each of so many ranks."""
    with forked(bodies, folder) as ranks:
        return [each.said() for each in ranks]


def _run(body: Callable[[], object], line: Connection, errors: Path) -> None:
    sys.stderr = open(errors, "w")  # noqa: SIM115 - while the process lives
    os.dup2(sys.stderr.fileno(), 2)
    faulthandler.enable(sys.stderr)
    line.send(body())
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(0)
