"""A load of commands that change nothing, published on schedule, and what the run says of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import Message

from esper.bench.load.tally import Tally
from esper.bus.faults import UnavailableError
from esper.leyline import commands, contracts as pb
from esper.leyline.seal import Opened

REASON = "load: changes nothing"


def harmless() -> pb.AdaptationCommand:
    """An emergency of the lowest level, NOTICE: judged, committed in a barrier round and answered by every rank as any
    command is, and then nothing happens; a replay passes over it. What stays is an entry in the run's log, its
    receipts, and the event `command.applied` in telemetry."""
    return commands.emergency("notice", REASON)


class Awaiting(Protocol):
    """Whoever takes the answers. Knows neither Redis nor a clock."""

    @property
    def tally(self) -> Tally: ...
    @property
    def num_waiting(self) -> int: ...
    def expect(self, command_id: str, due_s: float) -> None: ...
    def forget(self, command_id: str) -> None: ...
    def hear(self, message: Message, now_s: float) -> None: ...


@dataclass(slots=True)
class Asking:
    """One command after the other, each awaited, as a controller sends them; and a stream of the run that is read."""

    awaiting: Awaiting
    publish: Callable[[pb.AdaptationCommand], Awaitable[object]]
    said: AsyncIterator[Opened]
    clock: Callable[[], float] = time.perf_counter

    @property
    def num_waiting(self) -> int:
        return self.awaiting.num_waiting

    async def listen(self) -> None:
        async for opened in self.said:
            self.awaiting.hear(opened.message, self.clock())

    async def send(self, due_s: Sequence[float]) -> None:
        """Publish one for each. How late this begins is told as `start`: it is this process's doing, not the run's."""
        for due in due_s:
            await self._one(due)

    async def _one(self, due_s: float) -> None:
        tally, command = self.awaiting.tally, harmless()
        self.awaiting.expect(command.command_id, due_s)  # before it is sent: answers may overtake the reply of Redis
        tally.note("start", self.clock() - due_s)
        try:
            await self.publish(command)
        except UnavailableError:
            self.awaiting.forget(command.command_id)
            tally.counts["lost"] += 1
        else:
            tally.counts["sent"] += 1
            tally.note("added", self.clock() - due_s)
