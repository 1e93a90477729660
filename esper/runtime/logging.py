"""One line per event on stderr: for people, or as JSON. Events are named noun.verb_past, facts are keywords."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog
from structlog.dev import ConsoleRenderer, set_exc_info
from structlog.processors import JSONRenderer, dict_tracebacks

from esper.leyline.terminal_text import escaped
from esper.runtime.settings import Settings


class Lines:
    """A descriptor that takes lines or loses them: a full disk is no reason to end what its log tells of.

    sys.stderr would keep a line that it could not write, and fail again at the end of the process: status 120.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._text, self._is_torn = descriptor, "", False

    def write(self, text: str) -> int:
        self._text += text
        return len(text)

    def flush(self) -> None:
        """Write what there is. Where a part alone is taken, as by a disk that fills up, the next line begins anew."""
        line, self._text = self._text.encode(errors="backslashreplace"), ""
        left = b"\n" + line if self._is_torn else line
        with suppress(OSError):
            while left:
                left = left[os.write(self._descriptor, left) :]
                self._is_torn = bool(left)


def configure(settings: Settings, **context: Any) -> None:
    """Set the form of all logs of this process, and bind what every line says: role=, worker=, run=."""
    json = settings.log == "json"
    is_own = sys.stderr is sys.__stderr__  # and not what a test reads in its place
    output = cast(TextIO, Lines(2)) if is_own else sys.stderr
    for_people: list[structlog.typing.Processor] = [set_exc_info, escaped, ConsoleRenderer(colors=sys.stderr.isatty())]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([dict_tracebacks, JSONRenderer()] if json else for_people),
        ],
        logger_factory=structlog.PrintLoggerFactory(output),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**{name: value for name, value in context.items() if value})


get_logger = structlog.get_logger
