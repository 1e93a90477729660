"""Whether a process is on its way out."""

from __future__ import annotations

import sys

BY_SIGNAL = (130, 143)
"""Exit statuses that say SIGINT and SIGTERM, as shells have them: a handler that exits uses one of these."""


def is_interrupted() -> bool:
    """Whether this is called on the way out of a process that a signal ends."""
    error = sys.exc_info()[1]
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code in BY_SIGNAL)
