"""The installed `esper`: quiet on Ctrl-C also before its commands are imported, and after they are done."""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130


def esper() -> None:
    """What there is to clean up is begun within a command, and there Ctrl-C is an exception, as ever."""
    raised = signal.getsignal(signal.SIGINT)
    is_heeded = raised is not signal.SIG_IGN
    if is_heeded:
        signal.signal(signal.SIGINT, _end)
    from esper.cli.main import app

    signal.signal(signal.SIGINT, raised)
    try:
        app()
    finally:
        if is_heeded:
            signal.signal(signal.SIGINT, _end)


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)
