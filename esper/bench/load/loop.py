"""Drives a load: requests on schedule, answers as they come, and the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from esper.bench.load.arrivals import Arrivals
from esper.bench.load.results import Result
from esper.runtime.ending import first_of

LOOK_S = 0.01


class Work(Protocol):
    """One kind of load. Times are in seconds, of the clock that the loop was given."""

    async def send(self, due_s: Sequence[float]) -> None:
        """Make one request for each; those that Redis does not take are counted and not made again."""

    async def listen(self) -> None:
        """Hear answers, without end."""

    @property
    def num_waiting(self) -> int:
        """Requests that were sent and have not been answered."""


async def drive(
    arrivals: Arrivals,
    work: Work,
    stopping: asyncio.Event,
    patience_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Until the time is over and all is answered, or patience is; at once when told to stop.

    Raises what ended the reading of answers.
    """
    await first_of(work.listen(), _sent(arrivals, work, patience_s, clock), stopping.wait())


async def _sent(arrivals: Arrivals, work: Work, patience_s: float, clock: Callable[[], float]) -> None:
    while (wait_s := arrivals.wait_s(clock())) is not None:
        if wait_s:
            await asyncio.sleep(wait_s)
        if due_s := arrivals.take(clock()):
            await work.send(due_s)
    ends_s = clock() + patience_s
    while work.num_waiting and clock() < ends_s:
        await asyncio.sleep(LOOK_S)


def close_books(result: Result, arrivals: Arrivals, work: Work, now_s: float) -> None:
    """Count what was due and never sent, and what was sent and not answered: neither is in any latency."""
    result.seconds = max(0.0, min(arrivals.seconds, now_s - arrivals.began_s))
    counts = result.tally.counts
    missing = {"unsent": arrivals.num_due(now_s) - counts["sent"] - counts["lost"], "unanswered": work.num_waiting}
    counts.update({name: count for name, count in missing.items() if count > 0})
