"""Publishes the telemetry of many sources at a steady rate, in all three forms, and records what was acknowledged."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from esper.bus import connect, names
from esper.bus.publisher import Publisher
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.runtime import process
from tests.faults.history import History, Record
from tests.faults.measured import NAMES, Part, parts, values_of
from tests.faults.roles import arguments
from tests.faults.roles.publisher import added

INCARNATION = 1
TOGETHER_S = 0.02  # of telemetry in one round trip


@dataclass(frozen=True, slots=True)
class Told(arguments.Told):
    """How much it publishes of how many sources, and how fast."""

    seed: int
    sources: int
    count: int  # packets of each source
    per_s: float
    region: str


async def main(stopping: asyncio.Event) -> None:
    told = Told.begin("publisher")
    sealer = Sealer(told.keys(Role.WORKER), Role.WORKER, told.name, incarnation=INCARNATION)
    with told.history() as history:
        async with connect.client(told.url, 10.0) as redis:
            await connect.wait_ready(redis)
            await publish(told, sealer, Publisher(redis), history, stopping)


async def publish(told: Told, sealer: Sealer, publisher: Publisher, history: History, stopping: asyncio.Event) -> None:
    stream = names.region_key(told.run, told.region, "telemetry")
    values = [values_of(told.seed, source, told.count) for source in range(told.sources)]
    began, sent, hand = time.monotonic(), 0, list[tuple[bytes, Record]]()
    whole = parts(told.sources, told.count)
    for part in whole:
        rows = values[part.source][part.first - 1 :][: part.size]
        facts = {"frame": f"{part.source}/{part.first}", "packets": part.size, "sum": float(rows[:, 0].sum())}
        hand.append((sealer.seal(message(part, rows, told.region), target=told.region), facts))
        sent += part.size
        if sent >= (time.monotonic() - began + TOGETHER_S) * told.per_s or part is whole[-1]:
            history.note_all([{"what": "published", **each} for _, each in hand])
            await added(publisher, stream, [sealed for sealed, _ in hand])
            history.note_all([{"what": "acknowledged", **each} for _, each in hand])
            hand.clear()
            await asyncio.sleep(max(0.0, began + sent / told.per_s - time.monotonic()))
        if stopping.is_set():
            return


def message(part: Part, rows: NDArray[np.float64], region: str) -> Message:
    """Rows as the form that their source uses."""
    source, at_ns = f"worker-{part.source}", time.time_ns()
    if part.source % 8 == 0:
        return table(part, rows, region, at_ns)
    packets = [
        pb.TelemetryPacket(
            version=1,
            timestamp_ns=at_ns + each,
            source_subsystem=source if part.source % 8 == 1 else "",
            level=pb.TelemetryLevel.TELEMETRY_INFO,
            sequence=part.first + each,
            values=dict(zip(NAMES, row, strict=True)),
        )
        for each, row in enumerate(rows.tolist())
    ]
    if part.source % 8 == 1:
        return packets[0]
    return pb.TelemetryFrame(version=1, source=source, incarnation=INCARNATION, region=region, packets=packets)


def table(part: Part, rows: NDArray[np.float64], region: str, at_ns: int) -> pb.ColumnarFrame:
    numbers = np.arange(part.size, dtype="<u8")
    return pb.ColumnarFrame(
        version=1,
        source=f"worker-{part.source}",
        incarnation=INCARNATION,
        first_sequence=part.first,
        schema=pb.MetricSchema(version=1, names=NAMES),
        region=region,
        level=pb.TelemetryLevel.TELEMETRY_INFO,
        timestamp_ns=(numbers + np.uint64(at_ns)).tobytes(),
        global_step=(numbers + np.uint64(part.first)).tobytes(),
        values=rows.T.astype("<f8").tobytes(),
    )


if __name__ == "__main__":
    process.run(main)
