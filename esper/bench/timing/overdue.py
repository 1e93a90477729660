"""A row that hangs fails, and the rows behind it are measured."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from esper.errors import EsperError

AGAIN_S = 60.0
"""Between one interruption and the next, as what gives back what a row held may hang as well."""


class OverdueError(EsperError):
    """A row that was not done in time."""

    def __init__(self, row: str, seconds: float) -> None:
        self.row, self.seconds = row, seconds
        super().__init__(f"{row}: it was not done within {seconds:,.4g} s, and was ended")


def within(row: str, seconds: float | None, work: Callable[[], object]) -> None:
    """Does it. Raises OverdueError where it takes longer than that. None: it may take any time; so it may outside the
    main thread, which alone is told of alarms. What never comes back to Python goes on.

    It is interrupted as by Ctrl-C: an event loop takes any other exception for a callback's own.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        work()
        return
    alarms = list[int]()

    def interrupt(number: int, frame: FrameType | None) -> None:
        alarms.append(number)
        raise KeyboardInterrupt

    before, earlier = signal.signal(signal.SIGALRM, interrupt), signal.getitimer(signal.ITIMER_REAL)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
        work()
    except KeyboardInterrupt:
        if not alarms:
            raise
        raise OverdueError(row, seconds) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *earlier)  # of whoever called, as of a test that is not to hang
