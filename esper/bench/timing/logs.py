"""Where log lines of the measured code go: not among the figures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


class Warnings(structlog.PrintLogger):
    """Of what is less than a warning a line is made, as that is part of what is timed, and goes nowhere: a hundred
    checkpoints would hide which rows are done."""

    def nowhere(self, message: str) -> None: ...

    msg = log = debug = info = nowhere


@contextmanager
def logs_on_stderr() -> Iterator[None]:
    """Within the block warnings go to stderr, unless this process has said already where to: structlog's own choice is
    stdout."""
    if structlog.is_configured():
        yield
        return
    with warnings_on_stderr():
        yield


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Within the block, whatever this process has said."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.configure(logger_factory=lambda *_: Warnings(sys.stderr), cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.reset_defaults()
        if before is not None:
            structlog.configure(**before)
