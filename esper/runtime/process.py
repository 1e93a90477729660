"""How a process lives and ends: uvloop, signals, and an exit status that says how it went."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn, TypeAlias

import structlog
import uvloop

from esper.errors import EsperError, SettingError, UnknownRunError
from esper.runtime.gc_policy import collect_seldom

DONE, FAILED, MISUSED = 0, 1, 2
DRAIN_S = 3.0
"""From the first signal on, as long as a supervisor waits: what Redis has not taken by then comes again elsewhere."""
AGAIN_S = 1.0
ENDS = (signal.SIGTERM, signal.SIGINT)

Main: TypeAlias = Callable[[asyncio.Event], Awaitable[None]]

log = structlog.get_logger()


def run(main: Main, *, hears_ctrl_c: bool = True) -> NoReturn:
    """Run until `main` returns. The first SIGTERM or SIGINT sets its event: it stops reading, finishes, returns.

    A second signal ends the process at once, and so do three seconds after the first. Exit status: 0 done, 1 an
    EsperError or an end by force, 2 a setting that does not fit.

    `hears_ctrl_c`: not where a parent hears it too, and has something left to say through this process.
    """
    collect_seldom()
    if not hears_ctrl_c:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status_of(main, ENDS if hears_ctrl_c else ENDS[:1]))


def status_of(main: Main, ends: Sequence[signal.Signals] = ENDS) -> int:
    """The same, returning the exit status."""
    status = DONE
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(until_stopped(main, ends=ends))
    except* EsperError as group:
        status = told(first_of(group))
    except* asyncio.CancelledError:
        status = FAILED
    return status


def told(error: BaseException) -> int:
    """Say in one line what ended a process; return its exit status."""
    log.error("process.failed", why=str(error), error=type(error).__name__)
    return MISUSED if isinstance(error, SettingError | UnknownRunError) else FAILED


def first_of(group: BaseExceptionGroup[EsperError]) -> BaseException:
    """The first of the errors that ended tasks of one group; the others mostly follow from it."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


async def until_stopped(main: Main, drain_s: float = DRAIN_S, ends: Sequence[signal.Signals] = ENDS) -> None:
    """Run `main` with these signals tied to its event; cancelled where it goes on for `drain_s` after the first."""
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    this = asyncio.current_task()

    def give_up() -> None:
        if this is not None:
            this.cancel()
            loop.call_later(AGAIN_S, give_up)  # what cleans up may itself wait for a Redis that is gone

    def on_signal() -> None:
        if stopping.is_set():
            give_up()
        else:
            loop.call_later(drain_s, give_up)
        stopping.set()

    for number in ends:
        loop.add_signal_handler(number, on_signal)
    await main(stopping)
