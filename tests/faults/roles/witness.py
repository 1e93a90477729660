"""Writes down, outside Redis, every receipt and every global aggregate that ever stood in it. Never killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from google.protobuf.message import Message

from esper.bus import connect, names
from esper.bus.tail import follow
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener
from esper.runtime import process
from tests.faults.history import History, Record
from tests.faults.roles.arguments import Told


async def main(stopping: asyncio.Event) -> None:
    told = Told.begin("witness")
    accepted = [Domain.RECEIPT, Domain.AGGREGATE]
    opener = Opener(told.keys(Role.OBSERVER), guard=None, accept=accepted, carries_out=True)
    with told.history() as history:
        watching = [
            asyncio.create_task(watch(told.url, names.key(told.run, stream), opener, record, history))
            for stream, record in (("receipts", of_receipt), ("global", of_aggregate))
        ]
        stop = asyncio.create_task(stopping.wait())
        done, _ = await asyncio.wait([*watching, stop], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def watch(url: str, stream: str, opener: Opener, record: Callable[[Message], Record], history: History) -> None:
    async with connect.reader(url) as redis:
        async for entry_id, sealed in follow(redis, stream, "0-0"):
            opened = opener.open(sealed, entry_id, int(entry_id.partition("-")[0]))
            history.note_all([{"seen_in": stream.rpartition(":")[2], "seen_as": entry_id, **record(opened.message)}])


def of_receipt(receipt: Message) -> Record:
    assert isinstance(receipt, pb.CommandReceipt)
    return {"what": "applied", "id": receipt.command_id, "entry_id": receipt.entry_id, "worker": receipt.worker}


def of_aggregate(aggregate: Message) -> Record:
    assert isinstance(aggregate, pb.AggregatedTelemetry)
    metric = aggregate.metrics["v"]
    figures = {"packets": aggregate.num_packets, "values": metric.count, "sum": metric.sum}
    return {"what": "counted", "sequence": aggregate.sequence, **figures}


if __name__ == "__main__":
    process.run(main)
