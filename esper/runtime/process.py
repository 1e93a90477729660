"""How a process lives and ends: uvloop, signals, and an exit status that says how it went."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeAlias

import structlog
import uvloop

from esper.errors import EsperError, SettingError

DONE, FAILED, MISUSED = 0, 1, 2

Main: TypeAlias = Callable[[asyncio.Event], Awaitable[None]]

log = structlog.get_logger()


def run(main: Main) -> NoReturn:
    """Run until `main` returns. The first SIGTERM or SIGINT sets its event: it stops reading, finishes, returns.

    A second signal ends the process at once. Exit status: 0 done, 1 an EsperError, 2 a setting that does not fit.
    """
    sys.exit(status_of(main))


def status_of(main: Main) -> int:
    """The same, returning the exit status."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(until_stopped(main))
    except EsperError as error:
        log.error("process.failed", why=str(error), error=type(error).__name__)
        return MISUSED if isinstance(error, SettingError) else FAILED
    except asyncio.CancelledError:
        return FAILED
    return DONE


async def until_stopped(main: Main) -> None:
    """Run `main` with both signals tied to its event."""
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    this = asyncio.current_task()

    def on_signal() -> None:
        if stopping.is_set() and this is not None:
            this.cancel()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await main(stopping)
