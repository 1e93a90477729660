"""What waits to be folded says how much more is welcome, but for what is critical."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from esper.bus.connect import Redis
from esper.bus.group.backlog import MOST_WAITING, Backlog
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.runtime.beside.packets import Origin
from esper.runtime.beside.reporting import Reporting
from tests.bus_kit import put

CRITICAL = pb.TelemetryLevel.TELEMETRY_CRITICAL


async def taken(backlog: Backlog) -> int:
    """How many more entries are welcome before the next look."""
    num = 0
    while not backlog.spent.is_set():
        await backlog.take()
        num += 1
    return num


async def test_as_many_are_welcome_as_bring_what_is_unread_or_unsettled_to_the_most(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    stream = f"{run_id}:telemetry"
    backlog = Backlog(redis, stream, "regional", most=4)
    found = []

    async def look() -> None:
        await backlog.look()
        found.append(await taken(backlog))

    await look()
    await redis.xgroup_create(stream, "regional", id="0", mkstream=True)
    ids = await put(redis, stream, *[b"m"] * 5)
    await look()
    await redis_reader.execute_command("XREADGROUP", "GROUP", "regional", "a", "STREAMS", stream, ">")
    await look()
    for settled in (1, 2, 5):
        await redis.xack(stream, "regional", *ids[:settled])
        await look()

    assert found == [4, 0, 0, 0, 1, 4]


async def test_where_more_wait_than_the_server_counts_nothing_is_welcome(redis: Redis, run_id: str) -> None:
    stream = f"{run_id}:telemetry"
    backlog = Backlog(redis, stream, "regional")
    await redis.xgroup_create(stream, "regional", id="0", mkstream=True)
    ids = await put(redis, stream, *[b"m"] * (MOST_WAITING + 1))

    await backlog.look()
    full = await taken(backlog)
    await redis.xgroup_setid(stream, "regional", ids[9])
    await backlog.look()

    assert (full, await taken(backlog)) == (0, 9)


async def test_while_nothing_is_welcome_only_signals_of_critical_rows_go_out(redis: Redis, run_id: str) -> None:
    sealer = Sealer(MasterKeyring.new(time.time_ns()).derive(run_id, [Role.WORKER]), Role.WORKER, "worker-0")
    stream = f"{run_id}:telemetry"
    backlog = Backlog(redis, stream, "regional", most=2)
    await redis.xgroup_create(stream, "regional", id="0", mkstream=True)
    ids = await put(redis, stream, b"m", b"m")
    await backlog.look()
    added: list[bytes] = []
    warned = asyncio.Event()
    stored: list[int] = []

    async def add(sealed: bytes) -> None:
        added.append(sealed)

    async def warn(signal: pb.EmergencySignal) -> None:
        assert (signal.reason, signal.packet_sequence) == ("value.non_finite", 34)
        warned.set()

    async def lane() -> AsyncIterator[pb.ToRuntime]:
        events = [pb.RowEvent(row=33, level=CRITICAL, description="value.non_finite")]
        rows = pb.TelemetryRows(
            incarnation=1,
            first_sequence=1,
            names=["loss"],
            timestamp_ns=[1] * 40,
            global_step=range(40),
            values=[0.5] * 40,
            events=events,
        )
        yield pb.ToRuntime(rows=rows)

    def tell(message: pb.ToTrainer) -> None:
        stored.append(message.rows_stored.through_sequence)

    reporting = Reporting(Origin("worker-0", "north"), sealer, backlog, add, warn, tell)
    serving = asyncio.create_task(reporting._carry())
    await reporting._hear(lane())
    held = (warned.is_set(), list(added), list(stored))
    await redis.xgroup_setid(stream, "regional", ids[-1])
    await backlog.look()
    await serving

    assert held == (True, [], [])
    assert (len(added), stored) == (2, [32, 40])
