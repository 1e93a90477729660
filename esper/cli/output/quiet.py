"""Keeps the log lines of a command out of the screen that it draws."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TextIO, cast

from esper.leyline.terminal_text import escaped
from esper.runtime import gc_policy

with gc_policy.loading("rich"):  # which it would load to frame tracebacks; most commands draw nothing
    import structlog


def log_to_stderr() -> None:
    """Keep log events apart from what a command prints: `esper tail --json | jq` sees no line of them.

    A line that finds no room, or no reader, ends nothing.
    """
    log_by(lambda *_: structlog.PrintLogger(errors()))


def log_by(factory: Callable[..., Any]) -> None:
    """In the library's own form for people, unless this process has set another; with no byte that moves a cursor."""
    if not structlog.is_configured():
        *steps, renderer = structlog.get_config()["processors"]
        structlog.configure(processors=[*steps, escaped, renderer])
    structlog.configure(logger_factory=factory, cache_logger_on_first_use=False)


def errors() -> TextIO:
    """Where log events go: to this process's own stderr, or to what a test reads in its place."""
    return own_lines() if sys.stderr is sys.__stderr__ else sys.stderr


@cache
def own_lines() -> TextIO:
    """One for all: the library keeps a lock for each that it was given."""
    from esper.runtime.logging import Lines  # and settings, which a command does without that logs nothing

    return cast(TextIO, Lines(2))


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Write this process's log events to a file, for as long as the context lasts."""
    from esper.cli.output.terminal import terminal  # rich

    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    with terminal(descriptor, is_ours=True) as file:  # a disk that is full ends nothing but the log
        output = cast(TextIO, file)
        log_by(structlog.PrintLoggerFactory(output))
        try:
            yield
        finally:
            log_to_stderr()
