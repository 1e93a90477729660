"""Makes rows of all levels at a steady rate, as a trainer and its runtime do: what is not folded in time it sheds."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from esper.bus import connect, names
from esper.bus.backlog import Backlog
from esper.bus.publisher import Publisher
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.runtime import process
from esper.runtime.packets import Origin
from esper.runtime.reporting import Reporting
from esper.tolaria.rows import Rows
from tests.faults.roles import arguments

TICK_S = 0.01
DEBUG, WARNING = pb.TelemetryLevel.TELEMETRY_DEBUG, pb.TelemetryLevel.TELEMETRY_WARNING
LEVELS = [DEBUG, DEBUG, DEBUG, WARNING]


@dataclass(frozen=True, slots=True)
class Told(arguments.Told):
    """How much it makes, and how much of that may wait."""

    region: str
    per_s: float
    seconds: float
    most_waiting: int  # entries


class Maker:
    """A trainer's rows, and what became of them. Values are whole numbers: their sum is exact in any order."""

    def __init__(self) -> None:
        self.rows = Rows(incarnation=secrets.randbits(63))
        self.num_handed, self.sum_handed = 0, 0.0
        self.num_unfair = 0  # warnings that were shed while a DEBUG row had not been handed over
        self._num_debug = 0  # made, and neither handed over nor shed

    async def lane(self, told: Told) -> AsyncIterator[pb.ToRuntime]:
        """At its rate until its time is over; then until all that was not shed is stored."""
        began = time.monotonic()
        while self.rows.unstored or time.monotonic() < began + told.seconds:
            due = int(min(time.monotonic() - began, told.seconds) * told.per_s)
            for number in range(self.rows.made, due):
                self._make(number)
            while (table := self.rows.table()) is not None:
                self.num_handed += len(table.values)
                self._num_debug -= list(table.level).count(DEBUG)
                self.sum_handed += sum(table.values)
                yield pb.ToRuntime(rows=table)
            await asyncio.sleep(TICK_S)

    def _make(self, number: int) -> None:
        """One row, and by own count whether what it pushed out was the least of what waited."""
        level, before = LEVELS[number % len(LEVELS)], self.rows.shed_by_level.copy()
        self.rows.add(number, time.time_ns(), {"v": float(number % 1000)}, level)
        gone = self.rows.shed_by_level - before
        self._num_debug += (level == DEBUG) - gone[DEBUG]
        self.num_unfair += bool(gone[WARNING] and self._num_debug)

    def on_told(self, message: pb.ToTrainer) -> None:
        self.rows.stored(message.rows_stored.through_sequence)


async def main(stopping: asyncio.Event) -> None:
    told = Told.begin("publisher")
    stream = names.region_key(told.run, told.region, "telemetry")
    sealer = Sealer(told.keys(Role.WORKER), Role.WORKER, told.name)
    maker = Maker()
    with told.history() as history:
        async with connect.client(told.url, 10.0) as redis:
            await connect.wait_ready(redis)
            publisher, backlog = Publisher(redis), Backlog(redis, stream, "regional", told.most_waiting)
            add, warn = partial(added, publisher, stream), nothing_is_critical
            reporting = Reporting(Origin(told.name, told.region), sealer, backlog, add, warn, maker.on_told)
            await reporting.serve(maker.lane(told))
        facts = {"frame": "all", "packets": maker.num_handed, "sum": maker.sum_handed}
        by_level = {pb.TelemetryLevel.Name(level): count for level, count in maker.rows.shed_by_level.items()}
        history.note("published", **facts)
        history.note("acknowledged", **facts)
        history.note("made", made=maker.rows.made, shed=maker.rows.shed, by_level=by_level, unfair=maker.num_unfair)


async def added(publisher: Publisher, stream: str, sealed: bytes) -> None:
    await publisher.add(stream, sealed)


async def nothing_is_critical(signal: pb.EmergencySignal) -> None:
    raise AssertionError(f"{signal.reason} at step {signal.global_step}")


if __name__ == "__main__":
    process.run(main)
