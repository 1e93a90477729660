"""Carries a trainer's rows to Redis: what is critical at once, all else unless too much waits there to be folded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from esper.bus.group.backlog import Backlog
from esper.errors import BusError
from esper.leyline import contracts as pb
from esper.leyline.seal import Sealer
from esper.runtime.beside.packets import Origin, signals, telemetry
from esper.runtime.ending import meanwhile

LOOK_EVERY_S, SOONEST_S = 1.0, 0.25
"""Seconds between two looks at what waits; where all is spent that was welcome, the shorter ones."""

log = structlog.get_logger()


@dataclass
class Reporting:
    """While it holds back, the trainer keeps its rows, and sheds by level what it has no room for. No more is held here
    than the trainer has under way.

    It adds as many entries as there is room for on the stream and not all that waits in turns with nothing: as long as
    nothing goes out, the trainer's room fills with what it would rather keep."""

    origin: Origin
    sealer: Sealer
    backlog: Backlog
    add: Callable[[bytes], Awaitable[None]]  # to the region's telemetry
    warn: Callable[[pb.EmergencySignal], Awaitable[None]]
    tell: Callable[[pb.ToTrainer], None]
    _rows: asyncio.Queue[pb.TelemetryRows | None] = field(default_factory=asyncio.Queue)

    async def serve(self, lane: AsyncIterator[pb.ToRuntime]) -> None:
        """Until the trainer hangs up and all it has said is stored."""
        async with meanwhile(self._watch()):
            await asyncio.gather(self._hear(lane), self._carry())

    async def _hear(self, lane: AsyncIterator[pb.ToRuntime]) -> None:
        async for message in lane:
            for signal in signals(message.rows, self.origin):  # first: once its row is stored, it is not told again
                told = dict(signal.attributes)  # apart: an opened breaker's attributes have a `reason` of their own
                log.error("training.critical", reason=signal.reason, step=signal.global_step, attributes=told)
                await self.warn(signal)
            self._rows.put_nowait(message.rows)
        self._rows.put_nowait(None)

    async def _carry(self) -> None:
        while (rows := await self._rows.get()) is not None:
            for made, last in telemetry(rows, self.origin):
                await self.backlog.take()
                await self.add(self.sealer.seal(made))
                self.tell(pb.ToTrainer(rows_stored=pb.RowsStored(through_sequence=last)))

    async def _watch(self) -> None:
        while True:
            try:
                await self.backlog.look()
            except BusError as error:
                log.debug("backlog.unknown", why=str(error))
            await asyncio.sleep(SOONEST_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.backlog.spent.wait(), LOOK_EVERY_S - SOONEST_S)
