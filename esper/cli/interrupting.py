"""SIGTERM and SIGHUP, as of a terminal that is closed, end a command as Ctrl-C does: with its clean-up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def ends() -> list[signal.Signals]:
    """The two: no SIGHUP where whoever starts the command has it ignored, as `nohup` does."""
    is_left = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM] if is_left else [signal.SIGTERM, signal.SIGHUP]


@contextmanager
def interruptible() -> Iterator[None]:
    """They raise KeyboardInterrupt in the block."""
    before = {each: signal.signal(each, signal.default_int_handler) for each in ends()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(work: Coroutine[object, object, T]) -> T:
    """As asyncio.run; they cancel the work, and KeyboardInterrupt is raised once it has ended."""

    async def until_signalled() -> T:
        task = asyncio.current_task()
        assert task is not None
        for number in ends():
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await work

    try:
        return asyncio.run(until_signalled())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
