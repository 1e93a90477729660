"""Carries out each command once: the effect is an entry in Redis, written with the windows and the acknowledgement."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass

from esper.bus import connect, names
from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement, reject_spent
from esper.errors import RefusedError, StaleLeaseError
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain, Role
from esper.leyline.lifecycle import reason_name
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener
from esper.runtime import process
from esper.runtime.serving.missing import Missing
from esper.runtime.serving.windows import Windows
from esper.runtime.timekeeping import kept_right
from tests.faults.history import History, Record
from tests.faults.roles import arguments
from tests.faults.roles.worker import stop


@dataclass(frozen=True, slots=True)
class Told(arguments.Told):
    """How long it waits for an answer, and how often it looks at the server's clock."""

    answer_s: float = 10.0
    look_every_s: float = 30.0


class Follower:
    """One group of its own on the commands of a run."""

    def __init__(self, told: Told, opener: Opener, windows: Windows, clock: connect.ServerClock) -> None:
        self.opener, self.windows, self.clock = opener, windows, clock
        self.effects = names.key(told.run, f"effects-{told.name}")

    async def answer(self, batch: list[Delivery]) -> list[Record]:
        """Settle a batch; what took effect and what was refused, once it is settled. StaleLeaseError: nothing was."""
        settlement, records = Settlement(), list[Record]()
        for delivery in batch:
            records.append(self._answer(delivery, settlement))
        await self.windows.settle(settlement)
        return records

    def _answer(self, delivery: Delivery, settlement: Settlement) -> Record:
        facts = {"entry_id": delivery.entry_id, "attempts": delivery.attempts}
        if delivery.spent:
            reject_spent(settlement, delivery)
            return {"what": "spent", **facts}
        try:
            opened = self.opener.open(delivery.body, delivery.entry_id, self.clock.now_ms())
        except RefusedError as error:
            self.windows.missing.note_refused(delivery.body, error)
            settlement.reject(delivery, error)
            return {"what": "refused", "reason": reason_name(error.reason), **facts}
        self.windows.missing.note(opened.header)
        settlement.ack(delivery)
        assert isinstance(opened.message, pb.AdaptationCommand)
        named = {"id": opened.message.command_id, **facts}
        if opened.redelivered:  # its effect was written with the window that knows it
            return {"what": "met_again", **named}
        settlement.write(self.effects, opened.message.command_id.encode())
        return {"what": "applied", **named}


async def main(stopping: asyncio.Event) -> None:
    told = Told.begin("follower")
    async with AsyncExitStack() as stack:
        history = stack.enter_context(told.history())
        reader = await stack.enter_async_context(connect.client(told.url, None))
        writer = await stack.enter_async_context(connect.client(told.url, told.answer_s))
        await connect.wait_ready(writer)
        await connect.check_server(writer)
        inbox = Inbox(reader, writer, names.key(told.run, "commands"), told.name, told.name)
        guard, clock = ReplayGuard(), connect.ServerClock()
        windows = Windows(names.key(told.run, f"windows-{told.name}"), Outbox(writer), {"commands": guard}, Missing())
        opener = Opener(told.keys(Role.WORKER), name=told.name, guard=guard, accept=[Domain.COMMAND])
        await stack.enter_async_context(kept_right(clock, writer, told.look_every_s))
        await windows.load()
        await inbox.open()
        history.note("ready")
        stack.callback(asyncio.create_task(stop(inbox, stopping)).cancel)
        await follow(inbox, Follower(told, opener, windows, clock), history)


async def follow(inbox: Inbox, follower: Follower, history: History) -> None:
    async for batch in inbox.batches():
        try:
            history.note_all(await follower.answer(batch))
        except StaleLeaseError:
            inbox.rewind()


if __name__ == "__main__":
    process.run(main)
