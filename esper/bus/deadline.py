"""How long an answer of a server is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Any, TypeVar

LAST_LOOK_S = 0.1

T = TypeVar("T")


async def in_time(seconds: float | None, exchange: Awaitable[T]) -> T:
    """What the server answers; TimeoutError where it does not in that time.

    A process that was held up itself, by a signal, a busy machine or a long handler, finds the answer in its socket:
    a loop looks at timers before it looks at sockets, so that the first timer to run out only begins a last look.
    """
    if seconds is None:
        return await exchange
    with Limit(seconds):
        return await exchange


class Limit:
    """Cuts a block of the running task short. As asyncio.timeout, in half of its time: every command has one.

    A cancellation from elsewhere stays one, also where it comes as the time runs out.
    """

    __slots__ = ("_cancelling", "_cut", "_loop", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = asyncio.current_task(self._loop)
        self._cancelling = 0 if self._task is None else self._task.cancelling()
        self._cut = False
        self._timer = self._loop.call_later(seconds, self._look)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if not self._cut or self._task is None:
            return
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _look(self) -> None:
        self._timer = self._loop.call_later(LAST_LOOK_S, self._end)

    def _end(self) -> None:
        if self._task is not None:
            self._cut = self._task.cancel()
