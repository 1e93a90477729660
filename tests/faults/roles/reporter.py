"""Makes rows of two levels, as a trainer and its runtime do: as fast as they are taken, then at a rate, shedding."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from esper.bus import connect, names
from esper.bus.group.backlog import Backlog
from esper.bus.publisher import Publisher
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.runtime import process
from esper.runtime.beside.packets import Origin
from esper.runtime.beside.reporting import Reporting
from esper.tolaria.rows.rows import IN_FLIGHT, Rows
from tests.faults.roles import arguments

TICK_S = 0.01
FED = 2 * IN_FLIGHT  # rows not stored yet, of which the runtime has as many as it takes; there is room for all of them
DEBUG, WARNING = pb.TelemetryLevel.TELEMETRY_DEBUG, pb.TelemetryLevel.TELEMETRY_WARNING
LEVELS = (DEBUG, DEBUG, DEBUG, WARNING)


@dataclass(frozen=True, slots=True)
class Told(arguments.Told):
    """What it makes by, how much of that may wait, and where it is told of the flood."""

    region: str
    seed: int
    room: int  # rows
    most_waiting: int  # entries
    flood: str  # a file, once the row has measured


@dataclass(frozen=True, slots=True)
class Flood:
    """What the row orders."""

    per_s: float
    seconds: float

    @classmethod
    def ordered(cls, path: Path) -> Flood | None:
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None


class Maker:
    """A trainer's rows, and what became of them. The values `v` are whole numbers: their sum is exact in any order."""

    def __init__(self, room: int, seed: str) -> None:
        self.rows = Rows(incarnation=secrets.randbits(63), capacity=room)
        self.num_handed, self.sum_handed = 0, 0.0
        self.num_warnings, self.num_flooded, self.flooded_s = 0, 0, 0.0
        self.num_unfair = 0  # warnings that were shed while a DEBUG row waited
        self.num_out_of_turn = 0  # rows handed over that were to be shed before others of their level
        self._waiting: dict[int, dict[int, None]] = {DEBUG: {}, WARNING: {}}  # steps, the oldest first
        self._chance = random.Random(seed)

    async def lane(self, order: Path) -> AsyncIterator[pb.ToRuntime]:
        """As fast as rows are taken, without shedding; then flooded at a rate; then until what is left is stored."""
        while (flood := Flood.ordered(order)) is None:
            self._make(FED - self.rows.unstored)
            async for table in self._handed():
                yield table
        assert not self.rows.shed, f"{self.rows.shed} rows were shed of those that were fed"
        began_s, elapsed_s = time.monotonic(), 0.0
        while elapsed_s < flood.seconds or self.rows.unstored:
            if elapsed_s < flood.seconds:
                elapsed_s = time.monotonic() - began_s
                self.num_flooded += self._make(int(elapsed_s * flood.per_s) - self.num_flooded)
                self.flooded_s = time.monotonic() - began_s
            async for table in self._handed():
                yield table

    async def _handed(self) -> AsyncIterator[pb.ToRuntime]:
        """All that there is now; then a tick passes."""
        while (table := self.rows.table()) is not None:
            self.num_handed += len(table.global_step)
            self.sum_handed += sum(table.values[list(table.names).index("v") :: len(table.names)])
            for step, level in zip(table.global_step, table.level, strict=True):
                self.num_out_of_turn += step not in self._waiting[level]
                self._waiting[level].pop(step, None)
            yield pb.ToRuntime(rows=table)
        await asyncio.sleep(TICK_S)

    def _make(self, num: int) -> int:
        """So many rows; by an own account of what waits, the least and the oldest is what they put out."""
        rows, shed = self.rows, self.rows.shed_by_level
        for level in self._chance.choices(LEVELS, k=max(0, num)):
            step, shed_debug, shed_warnings = rows.made, shed[DEBUG], shed[WARNING]
            rows.add(step, time.time_ns(), {"v": float(step % 1000), "lr": 0.1, "step_ms": 10.0}, level)
            self._waiting[level][step] = None
            self.num_warnings += level == WARNING
            if shed[DEBUG] > shed_debug:
                self._forget(DEBUG)
            if shed[WARNING] > shed_warnings:
                self.num_unfair += bool(self._waiting[DEBUG])
                self._forget(WARNING)
        return max(0, num)

    def _forget(self, level: pb.TelemetryLevel) -> None:
        """The oldest of this level was shed, if all is as it should be."""
        del self._waiting[level][next(iter(self._waiting[level]))]

    def on_told(self, message: pb.ToTrainer) -> None:
        self.rows.stored(message.rows_stored.through_sequence)


async def main(stopping: asyncio.Event) -> None:
    told = Told.begin("publisher")
    stream = names.region_key(told.run, told.region, "telemetry")
    sealer = Sealer(told.keys(Role.WORKER), Role.WORKER, told.name)
    maker = Maker(told.room, f"{told.seed} {told.name}")
    with told.history() as history:
        async with connect.client(told.url, 10.0) as redis:
            await connect.wait_ready(redis)
            publisher, backlog = Publisher(redis), Backlog(redis, stream, "regional", told.most_waiting)
            add, warn = partial(added, publisher, stream), nothing_is_critical
            reporting = Reporting(Origin(told.name, told.region), sealer, backlog, add, warn, maker.on_told)
            await reporting.serve(maker.lane(Path(told.flood)))
        facts = {"frame": told.name, "packets": maker.num_handed, "sum": maker.sum_handed}
        history.note("published", **facts)
        history.note("acknowledged", **facts)
        history.note("made", flooded_s=maker.flooded_s, rows=account(maker))


def account(maker: Maker) -> Mapping[str, int]:
    """What a row judges it by."""
    by_level = maker.rows.shed_by_level
    return {
        "made": maker.rows.made,
        "warnings": maker.num_warnings,
        "flooded": maker.num_flooded,
        "shed": maker.rows.shed,
        "shed_debug": by_level[DEBUG],
        "shed_warnings": by_level[WARNING],
        "unfair": maker.num_unfair,
        "out_of_turn": maker.num_out_of_turn,
    }


async def added(publisher: Publisher, stream: str, sealed: bytes) -> None:
    await publisher.add(stream, sealed)


async def nothing_is_critical(signal: pb.EmergencySignal) -> None:
    raise AssertionError(f"{signal.reason} at step {signal.global_step}")


if __name__ == "__main__":
    process.run(main)
