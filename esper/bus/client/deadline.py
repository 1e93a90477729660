"""How long an answer of a server is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from math import inf
from types import TracebackType
from typing import Any, TypeVar

LAST_LOOK_S = 0.1
MOST_MADE_UP_S = 1.0

T = TypeVar("T")


def ends_in(seconds: float | None) -> float:
    """When so much time is over, by the clock of the running loop; None: never."""
    return inf if seconds is None else asyncio.get_running_loop().time() + seconds


def last_look(end: float, now: float) -> float:
    """Until when an answer is still looked for that was due at `end`.

    Who comes to look much later was held up, perhaps with the whole machine and so with the server, whom the command
    may have reached only now: as long again, up to a second.
    """
    return now + max(LAST_LOOK_S, min(now - end, MOST_MADE_UP_S))


async def in_time(seconds: float | None, exchange: Awaitable[T]) -> T:
    """What the server answers; TimeoutError where it does not in that time."""
    return await by(ends_in(seconds), exchange)


async def by(end: float, exchange: Awaitable[T]) -> T:
    """What the server answers; TimeoutError where it does not until then.

    A process that was held up itself, by a signal, a busy machine or a long handler, finds the answer in its socket:
    a loop looks at timers before it looks at sockets, so that the first timer to run out only begins a last look.
    """
    if end == inf:
        return await exchange
    with Limit(end):
        return await exchange


class Limit:
    """Cuts a block of the running task short. As asyncio.timeout, in half of its time.

    A cancellation from elsewhere stays one, also where it comes as the time runs out.
    """

    __slots__ = ("_cancelling", "_cut", "_end", "_loop", "_task", "_timer")

    def __init__(self, end: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = asyncio.current_task(self._loop)
        self._cancelling = 0 if self._task is None else self._task.cancelling()
        self._cut, self._end = False, end
        self._timer: asyncio.Handle = self._loop.call_at(end, self._look)

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
        self._timer = self._loop.call_at(last_look(self._end, self._loop.time()), self._give_up)

    def _give_up(self) -> None:
        self._timer = self._loop.call_soon(self._cut_short)  # behind whoever this turn of the loop has an answer for

    def _cut_short(self) -> None:
        if self._task is not None:
            self._cut = self._task.cancel()


class Watch:
    """Ends what takes too long of one wait after the other: TimeoutError, after a last look as in `by`.

    One timer for all of them, which goes back to sleep where it finds a younger one. A timer a wait is 5 us.
    """

    __slots__ = ("_end", "_looked_for", "_loop", "_timer", "_waiter", "_wakes_at")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[Any] | None = None
        self._looked_for: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._end = self._wakes_at = inf

    def begin(self, waiter: asyncio.Future[Any], end: float) -> None:
        """Watch this one from now on."""
        self._waiter, self._end = waiter, end
        if end < self._wakes_at:
            self._sleep(end)

    def done(self) -> None:
        """There is none to watch; the timer finds that out by itself."""
        self._waiter = None

    def close(self) -> None:
        """Leave no timer behind."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._wakes_at = None, inf

    def _sleep(self, until: float) -> None:
        self.close()
        self._timer, self._wakes_at = self._loop.call_at(until, self._look), until

    def _look(self) -> None:
        waiter, now = self._waiter, self._loop.time()
        self._timer, self._wakes_at = None, inf
        looked, self._looked_for = self._looked_for, None
        if waiter is None or waiter.done() or self._end == inf:
            return
        if looked is waiter:
            waiter.set_exception(TimeoutError())
        elif self._end <= now:
            self._looked_for = waiter
            self._sleep(last_look(self._end, now))
        else:
            self._sleep(self._end)
