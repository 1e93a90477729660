"""A worker whose handler kills it at one kind of command, fails at another, and carries out all others."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

from esper.bus import connect
from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.errors import EsperError
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened
from esper.runtime import process
from esper.runtime.serving.loop import serve
from tests.faults.history import History
from tests.faults.roles import worker

KILLS, FAILS = "kills/", "fails/"  # how ids of such commands begin


class Poisoned(worker.Worker):
    """Writes down each handling that goes wrong, before it does."""

    def __init__(self, told: worker.Told, clock: connect.ServerClock, history: History) -> None:
        super().__init__(told, clock)
        self.history, self.attempts = history, 0

    def read(self, delivery: Delivery) -> Opened:
        self.attempts = delivery.attempts
        return super().read(delivery)

    def handle(self, opened: Opened) -> Iterator[tuple[str, bytes]]:
        assert isinstance(opened.message, pb.AdaptationCommand)
        command_id = opened.message.command_id
        if command_id.startswith(KILLS):
            self.history.note("dying", id=command_id, entry_id=opened.entry_id, attempts=self.attempts)
            os.kill(os.getpid(), signal.SIGKILL)
        if command_id.startswith(FAILS):
            self.history.note("failing", id=command_id, entry_id=opened.entry_id, attempts=self.attempts)
            raise EsperError("the handler can't")
        yield from super().handle(opened)


async def main(stopping: asyncio.Event) -> None:
    told = worker.Told.begin("poisoned")
    with told.history() as history:
        async with worker.hands(told, Inbox, stopping) as (inbox, outbox, clock):
            hand = Poisoned(told, clock, history)
            await serve(inbox, hand.read, hand.handle, outbox)


if __name__ == "__main__":
    process.run(main)
