"""Publishes sealed commands one by one at a steady rate, and records which of them Redis acknowledged."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esper.bus import connect, names
from esper.bus.backoff import Backoff
from esper.bus.durability import DurablePublisher, Wanted, announce, publisher
from esper.bus.faults import UnavailableError
from esper.bus.publisher import Publisher
from esper.leyline import commands, contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.runtime import process
from tests.faults.clock import offset_s, stepped
from tests.faults.history import History
from tests.faults.roles import arguments

SAME_BYTES_S = 30.0
"""Afterwards an entry would be stale before long."""


@dataclass(frozen=True, slots=True)
class Told(arguments.Told):
    """What it publishes how, and how fast."""

    wanted: Wanted = "fast"
    per_s: float = 200.0
    answer_s: float = 10.0  # how long a reply is waited for
    rates: bool = False  # what each rank of a run can carry out, in place of orders for a seed that nobody has


async def main(stopping: asyncio.Event) -> None:
    told = Told.begin("commander")
    clock_ns = stepped(Path(told.directory) / "clock")
    sealer = Sealer(told.keys(Role.CONTROLLER), Role.CONTROLLER, told.name, clock_ns=clock_ns)
    with told.history() as history:
        async with connect.client(told.url, told.answer_s) as redis:
            await connect.wait_ready(redis)
            durability = await announce(redis, told.wanted)
            await publish(told, sealer, publisher(redis, durability, told.wanted), history, stopping)


async def publish(
    told: Told, sealer: Sealer, to: Publisher | DurablePublisher, history: History, stopping: asyncio.Event
) -> None:
    """One after the other, so that what is missing is never out of order."""
    stream, clock = names.key(told.run, "commands"), Path(told.directory) / "clock"
    began, sequence = time.monotonic(), 0
    while not stopping.is_set():
        sequence += 1
        facts: dict[str, Any] = {"id": f"{told.name}/{sequence}", "producer": told.name, "sequence": sequence}
        command = ordered(facts["id"], rate=told.rates)
        before_s = offset_s(clock)
        sealed = sealer.seal(command)
        facts["clock_s"] = before_s if before_s == offset_s(clock) else None  # None: it was stepped in between
        history.note("sent", **facts)
        entry_id = await added(to, stream, sealed)
        history.note("acked" if entry_id else "given_up", entry_id=entry_id, **facts)
        behind_s = began + sequence / told.per_s - time.monotonic()
        await asyncio.sleep(max(0.0, behind_s))


def ordered(command_id: str, *, rate: bool) -> pb.AdaptationCommand:
    """One that is told from all others by its id."""
    command = commands.adjust("host", {"lr": 0.1}) if rate else commands.seed(command_id, pb.SeedOperation.SEED_OP_CULL)
    command.command_id = command_id
    return command


async def added(to: Publisher | DurablePublisher, stream: str, sealed: bytes) -> str:
    """The id of the acknowledged entry; empty where none came in time. The same bytes again after each failure."""
    backoff, deadline = Backoff(), time.monotonic() + SAME_BYTES_S
    while time.monotonic() < deadline:
        try:
            return await to.add(stream, sealed)
        except UnavailableError:
            await asyncio.sleep(backoff.next_s())
    return ""


if __name__ == "__main__":
    process.run(main)
