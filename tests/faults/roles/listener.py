"""Carries out commands by itself with windows of its own, or as one of a team; follows its keyring's file meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from esper.bus import connect, names
from esper.bus.group.consumer import Pace
from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.lifecycle import reason_name
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opened, Opener
from esper.runtime import process
from esper.runtime.keys import kept_current
from esper.runtime.serving.loop import serve
from esper.runtime.serving.missing import Missing
from esper.runtime.serving.windows import Windows
from esper.runtime.timekeeping import kept_right
from tests.faults.history import History, Record
from tests.faults.roles.follower import Follower, Told as FollowerTold, follow
from tests.faults.roles.worker import stop

STREAMS: Mapping[str, Domain] = {"commands": Domain.COMMAND, "optimizer": Domain.OPTIMIZER}


@dataclass(frozen=True, slots=True)
class Told(FollowerTold):
    """How it listens, and how much it reads at once."""

    group: str = ""
    guarded: bool = True  # a group of its own, and windows; else a team, whose record Redis keeps
    count: int = 256
    hold_s: float = 0.0  # for what it has read, before any of it is settled
    reclaim_after_ms: int = 300


class Holding(Follower):
    """Takes its time over each batch."""

    hold_s = 0.0

    async def answer(self, batch: list[Delivery]) -> list[Record]:
        await asyncio.sleep(self.hold_s)
        return await super().answer(batch)


class Member:
    """One of a team. Writes down what it opened and what it refused."""

    def __init__(self, told: Told, opener: Opener, clock: connect.ServerClock, history: History) -> None:
        self.told, self.opener, self.clock, self.history = told, opener, clock, history
        self.effects = names.key(told.run, f"effects-{told.group}")

    def read(self, delivery: Delivery) -> Opened:
        facts = {"entry_id": delivery.entry_id, "attempts": delivery.attempts}
        try:
            opened = self.opener.open(delivery.body, delivery.entry_id, self.clock.now_ms())
        except RefusedError as error:
            self.history.note("refused", reason=reason_name(error.reason), **facts)
            raise
        self.history.note("opened", **facts)
        return opened

    def handle(self, opened: Opened) -> Iterator[tuple[str, bytes]]:
        """Blocks, as a handler that computes does."""
        time.sleep(self.told.hold_s)
        assert isinstance(opened.message, pb.AdaptationCommand)
        yield self.effects, opened.message.command_id.encode()


@dataclass(frozen=True, slots=True)
class Place:
    """One stream that a listener hears, and what it does that with."""

    told: Told
    keyring: RoleKeyring
    domain: Domain
    inbox: Inbox
    clock: connect.ServerClock
    history: History

    def opener(self, guard: ReplayGuard | None) -> Opener:
        return Opener(self.keyring, name=self.told.name, guard=guard, accept=[self.domain])


async def main(stopping: asyncio.Event) -> None:
    told = Told.begin("listener")
    keyring = told.keys(Role.WORKER)
    listen = listen_alone if told.guarded else listen_together
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(kept_current(keyring, told.keyring(Role.WORKER)))
        writer = await stack.enter_async_context(connect.client(told.url, told.answer_s))
        await connect.wait_ready(writer)
        await connect.check_server(writer)
        clock = connect.ServerClock()
        await stack.enter_async_context(kept_right(clock, writer, told.look_every_s))
        async with asyncio.TaskGroup() as listening:
            for stream, domain in STREAMS.items():
                history = stack.enter_context(told.history(f"{told.group}@{stream}"))
                reader = await stack.enter_async_context(connect.client(told.url, None))
                inbox = inbox_of(told, reader, writer, stream)
                stack.callback(asyncio.create_task(stop(inbox, stopping)).cancel)
                listening.create_task(listen(Place(told, keyring, domain, inbox, clock, history)))


def inbox_of(told: Told, reader: connect.Redis, writer: connect.Redis, stream: str) -> Inbox:
    place = (names.key(told.run, stream), told.group, told.name)
    reclaim_after_ms = None if told.guarded else told.reclaim_after_ms
    return Inbox(reader, writer, *place, Pace(reclaim_after_ms=reclaim_after_ms, count=told.count))


async def listen_alone(at: Place) -> None:
    stream, guard = at.inbox.source.stream.rpartition(":")[2], ReplayGuard()
    hash_key = names.key(at.told.run, f"windows-{at.told.name}-{stream}")
    windows = Windows(hash_key, Outbox(at.inbox.writer), {stream: guard}, Missing())
    follower = Holding(at.told, at.opener(guard), windows, at.clock)
    follower.hold_s = at.told.hold_s
    await windows.load()
    await at.inbox.open()
    await follow(at.inbox, follower, at.history)


async def listen_together(at: Place) -> None:
    member = Member(at.told, at.opener(None), at.clock, at.history)
    await serve(at.inbox, member.read, member.handle, Outbox(at.inbox.writer))


if __name__ == "__main__":
    process.run(main)
