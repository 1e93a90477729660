"""Where log lines of the measured code go: not among the figures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def logs_on_stderr() -> Iterator[None]:
    """Within the block they go to stderr, unless this process has said already where to: structlog's own choice is
    stdout."""
    if structlog.is_configured():
        yield
        return
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr), cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.reset_defaults()
