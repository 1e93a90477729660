"""A load of telemetry: packets sealed as a worker of their own, each timed until a global aggregate holds it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from esper.bench.load.tally import Tally
from esper.bus.faults import UnavailableError
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened
from esper.narset.transient_metrics import PREFIX

NUM_METRICS = 5


def name_of(part: str) -> str:
    """Of a metric of a load."""
    return f"{PREFIX}load.{part}"


def packet(tag: str, sequence: int, at_ns: int) -> pb.TelemetryPacket:
    """Five metrics, under names that no worker has and no total keeps: the run's own statistics stay what they are, and
    so do the names that are left for them. One is this load's alone, the others are of all loads.

    Level DEBUG and step 0, so that nobody who watches the run takes it for a step of it; its totals count it.
    """
    names = [name_of(tag), *(name_of(str(number)) for number in range(1, NUM_METRICS))]
    values = dict.fromkeys(names, float(sequence))
    level = pb.TelemetryLevel.TELEMETRY_DEBUG
    return pb.TelemetryPacket(version=1, timestamp_ns=at_ns, level=level, sequence=sequence, values=values)


class Folded:
    """Packets on their way in the order of their sequences, which is that of folding. Knows neither Redis nor a clock.

    How many of them a global aggregate holds is the count of one metric that nobody else has.
    """

    def __init__(self, tally: Tally, tag: str) -> None:
        self.tally, self.tag = tally, tag
        self._waiting: deque[float] = deque()

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def expect(self, due_s: Sequence[float]) -> None:
        """Before they are sent: an aggregate may overtake the reply of Redis."""
        self._waiting.extend(due_s)

    def on_aggregate(self, aggregate: pb.AggregatedTelemetry, now_s: float) -> None:
        """Count those of ours that it holds."""
        own = name_of(self.tag)
        count = aggregate.metrics[own].count if own in aggregate.metrics else 0
        self.tally.counts["folded"] += count
        for _ in range(min(count, len(self._waiting))):
            self.tally.note("global", now_s - self._waiting.popleft())


@dataclass(slots=True)
class Packets:
    """Sends all that are due in one round trip, and reads global aggregates."""

    folded: Folded
    seal: Callable[[pb.TelemetryPacket], bytes]
    add: Callable[[Sequence[bytes]], Awaitable[object]]
    aggregates: AsyncIterator[Opened]
    clock: Callable[[], float] = time.perf_counter
    num_made: int = 0

    @property
    def num_waiting(self) -> int:
        return self.folded.num_waiting

    async def send(self, due_s: Sequence[float]) -> None:
        """Seal and add them. Those of a round trip that fails may be there, and stay awaited: the tiers will tell."""
        tally = self.folded.tally
        for due in due_s:
            tally.note("start", self.clock() - due)
        self.folded.expect(due_s)
        sealed = [self.seal(self._next()) for _ in due_s]
        try:
            await self.add(sealed)
        except UnavailableError:
            tally.counts["lost"] += len(sealed)
            return
        now_s = self.clock()
        tally.counts["sent"] += len(sealed)
        for due in due_s:
            tally.note("added", now_s - due)

    async def listen(self) -> None:
        async for opened in self.aggregates:
            if isinstance(opened.message, pb.AggregatedTelemetry):
                self.folded.on_aggregate(opened.message, self.clock())

    def _next(self) -> pb.TelemetryPacket:
        self.num_made += 1
        return packet(self.folded.tag, self.num_made, time.time_ns())
