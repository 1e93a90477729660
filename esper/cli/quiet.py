"""Keeps the log lines of a command out of the screen that it draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Write this process's log events to a file, for as long as the context lasts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", buffering=1) as file:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(file), cache_logger_on_first_use=False)
        try:
            yield
        finally:
            structlog.reset_defaults()
