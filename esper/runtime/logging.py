"""One line per event on stderr: for people, or as JSON. Events are named noun.verb_past, facts are keywords."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog

from esper.runtime.settings import Settings


class Unfailing:
    """A file that swallows what it can't write: a full disk is no reason to end what its log tells of."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


def configure(settings: Settings, **context: Any) -> None:
    """Set the form of all logs of this process, and bind what every line says: role=, worker=, run=."""
    json = settings.log == "json"
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks if json else structlog.dev.set_exc_info,
            structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, Unfailing(sys.stderr))),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**{name: value for name, value in context.items() if value})


get_logger = structlog.get_logger
