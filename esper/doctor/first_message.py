"""Publishes a sealed message, reads it and settles it as a run does, on a stream of its own, which is deleted."""

from __future__ import annotations

import asyncio
import time

from esper.bus.connect import Redis, ServerClock
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.names import key, new_run_id
from esper.bus.publisher import Publisher
from esper.doctor.facts import FirstMessage
from esper.doctor.rights import is_refusal
from esper.errors import BusError, EsperError
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, Sealer

PATIENCE_S = 10.0
GROUP = "coordinator"


async def first_message(reader: Redis, writer: Redis) -> FirstMessage:
    """How long a first message takes here, from its seal to its settled entry; the script is loaded on the way."""
    run_id, outbox = new_run_id("doctor"), Outbox(writer)
    stream = key(run_id, "heartbeats")
    try:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await carried(reader, outbox, run_id, stream)
        finally:
            await writer.execute_command("DEL", stream, outbox.memory(stream))
    except BusError as error:
        return FirstMessage(0.0, str(error), may_not=is_refusal(error))
    except (EsperError, TimeoutError) as error:
        return FirstMessage(0.0, str(error) or f"it was not read and settled within {PATIENCE_S:g} s")


async def carried(reader: Redis, outbox: Outbox, run_id: str, stream: str) -> FirstMessage:
    """One message all the way, under keys that nobody else has."""
    writer, clock = outbox.redis, ServerClock(stream)
    await clock.look(writer)
    master = MasterKeyring.new(clock.now_ns())
    sealer = Sealer(master.derive(run_id, [Role.WORKER]), Role.WORKER, "doctor", clock_ns=clock.now_ns)
    keys = master.derive(run_id, [Role.COORDINATOR])
    opener = Opener(keys, name=GROUP, guard=ReplayGuard(), accept=[Domain.HEARTBEAT])
    inbox, began_s = Inbox(reader, writer, stream, GROUP, GROUP), time.monotonic()
    await inbox.open()
    beat = pb.Heartbeat(version=1, worker="doctor", world_size=1, region="local", time_ns=clock.now_ns(), loss=0.0)
    await Publisher(writer).add(stream, sealer.seal(beat))
    settlement = Settlement()
    async for batch in inbox.batches(until_idle=True):
        for delivery in batch:
            opener.open(delivery.body, delivery.entry_id, clock.now_ms())
            settlement.ack(delivery)
        await outbox.settle(settlement)
    seconds = time.monotonic() - began_s
    return FirstMessage(seconds) if settlement.acks else FirstMessage(0.0, "the stream was empty once it was read")
