"""Publishes commands or telemetry at a steady rate, a few in a round trip, and records what Redis acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from esper.bus import connect, names
from esper.bus.backoff import Backoff
from esper.bus.durability import CONFIRM_MS, Durability, UnconfirmedError, admit
from esper.bus.faults import UnavailableError
from esper.bus.group.delivery import FIELD
from esper.bus.protocol import Argument
from esper.bus.publisher import Publisher
from esper.errors import BusError
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.runtime import process
from esper.runtime.keys import kept_current
from tests.faults.history import History, Record
from tests.faults.roles import arguments

SAME_BYTES_S = 50.0
"""Afterwards they would have to be sealed anew. No fault of these rows lasts so long, nor three failovers in a row."""
PACKETS = 32  # in a frame

Item: TypeAlias = tuple[bytes, Record]


@dataclass(frozen=True, slots=True)
class Told(arguments.Told):
    """How much it publishes, and how fast."""

    count: int
    per_s: float
    together: int = 16  # messages in one round trip
    region: str = ""  # telemetry of this region; empty: commands
    answer_s: float = 10.0
    durable: bool = False  # nothing counts as acknowledged before it is safe


class Safe(Publisher):
    """Waits until the server says that all of it is safe."""

    def __init__(self, redis: connect.Redis, durability: Durability) -> None:
        super().__init__(redis)
        self._durability = durability

    async def add_many(self, stream_key: str, messages: Sequence[bytes]) -> list[str]:
        confirm = self._durability.confirm
        adding: list[Sequence[Argument]] = [("XADD", stream_key, "*", FIELD, sealed) for sealed in messages]
        adding.append((*map(str, confirm), str(CONFIRM_MS)))
        *ids, reached = await self.redis.ask_all(adding)
        if not self._durability.confirmed(reached):
            raise UnconfirmedError(stream_key, ids[-1].decode(), confirm, reached)
        return [entry_id.decode() for entry_id in ids]


async def main(stopping: asyncio.Event) -> None:
    told = Told.begin("publisher")
    role = Role.WORKER if told.region else Role.CONTROLLER
    keyring = told.keys(role)
    sealer = Sealer(keyring, role, told.name)
    make = frames(told, sealer) if told.region else commands(told, sealer)
    with told.history() as history:
        async with kept_current(keyring, told.keyring(role)), connect.client(told.url, told.answer_s) as redis:
            await connect.wait_ready(redis)
            await publish(told, make, await to(redis, durable=told.durable), history, stopping)


async def to(redis: connect.Redis, *, durable: bool) -> Publisher:
    return Safe(redis, await admit(redis, "durable")) if durable else Publisher(redis)


async def publish(
    told: Told, make: Callable[[int], Item], publisher: Publisher, history: History, stopping: asyncio.Event
) -> None:
    stream = names.region_key(told.run, told.region, "telemetry") if told.region else names.key(told.run, "commands")
    began = time.monotonic()
    for numbers in rounds(told):
        if stopping.is_set():
            return
        items = [make(number) for number in numbers]
        history.note_all([{"what": "published", **facts} for _, facts in items])
        ids = await added(publisher, stream, [sealed for sealed, _ in items])
        history.note_all(
            [{"what": "acknowledged", "entry_id": at, **facts} for at, (_, facts) in zip(ids, items, strict=True)]
        )
        await asyncio.sleep(max(0.0, began + numbers.stop / told.per_s - time.monotonic()))


def rounds(told: Told) -> Iterator[range]:
    for start in range(0, told.count, told.together):
        yield range(start, min(start + told.together, told.count))


async def added(publisher: Publisher, stream: str, messages: list[bytes]) -> list[str]:
    """Ids of the acknowledged entries. After each failure the same bytes again, all of them."""
    backoff, deadline = Backoff(), time.monotonic() + SAME_BYTES_S
    while True:
        try:
            return await publisher.add_many(stream, messages)
        except UnavailableError as error:
            if time.monotonic() > deadline:
                raise BusError(f"not acknowledged within {SAME_BYTES_S} s") from error
            await asyncio.sleep(backoff.next_s())


def commands(told: Told, sealer: Sealer) -> Callable[[int], Item]:
    def make(number: int) -> Item:
        command = pb.AdaptationCommand(
            version=1,
            command_id=f"{told.name}/{number}",
            command_type=pb.CommandType.COMMAND_OPTIMIZER,
            priority=pb.MessagePriority.MESSAGE_PRIORITY_NORMAL,
            optimizer_adjustment=pb.OptimizerAdjustment(optimizer_id="host", hyperparameters={"lr": 0.1}),
        )
        return sealer.seal(command), {"id": command.command_id}

    return make


def frames(told: Told, sealer: Sealer) -> Callable[[int], Item]:
    """Whole numbers as values: their sum is exact in any order."""

    def make(number: int) -> Item:
        sequences = range(number * PACKETS + 1, (number + 1) * PACKETS + 1)
        packets = [
            pb.TelemetryPacket(version=1, timestamp_ns=time.time_ns(), sequence=each, values={"v": float(each % 1000)})
            for each in sequences
        ]
        frame = pb.TelemetryFrame(version=1, source=told.name, incarnation=1, region=told.region, packets=packets)
        facts = {"frame": number, "packets": PACKETS, "sum": sum(each % 1000 for each in sequences)}
        return sealer.seal(frame), facts

    return make


if __name__ == "__main__":
    process.run(main)
