"""Every packet is counted once in the global summary, through both tiers and a real server, whatever stops when."""

from __future__ import annotations

import asyncio
import math
import random
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message

from esper.bus.connect import Redis
from esper.bus.faults import LostError
from esper.bus.names import key
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened
from esper.narset.sketch import read_sketch
from tests.bus_kit import bodies, num_pending, put
from tests.packet_kit import framed, num_packets, packets
from tests.tiers import DyingOutbox, PausedOutbox, Tiers

REGIONS = ["north", "south"]


def tables(made: Sequence[pb.TelemetryPacket], source: str, *, most: int = 256) -> list[pb.ColumnarFrame]:
    """The same packets as tables of up to `most` rows."""
    return [table(made[start : start + most], source) for start in range(0, len(made), most)]


def table(rows: Sequence[pb.TelemetryPacket], source: str) -> pb.ColumnarFrame:
    names = sorted(rows[0].values)
    return pb.ColumnarFrame(
        version=1,
        source=source,
        incarnation=1,
        first_sequence=rows[0].sequence,
        schema=pb.MetricSchema(version=1, names=names),
        region="north",
        level=pb.TelemetryLevel.TELEMETRY_INFO,
        timestamp_ns=struct.pack(f"<{len(rows)}Q", *(row.timestamp_ns for row in rows)),
        global_step=struct.pack(f"<{len(rows)}Q", *(row.global_step for row in rows)),
        values=struct.pack(f"<{len(rows) * len(names)}d", *(row.values[name] for name in names for row in rows)),
    )


async def test_the_global_aggregate_equals_a_numpy_reduction_of_all_raw_packets(tiers: Tiers) -> None:
    raw: list[tuple[int, str, int, float]] = []
    for index, (region, most) in enumerate([("north", 32), ("north", 7), ("south", 31)]):
        source, made = f"worker-{index}", packets(1500, seed=index)
        made[3].values["norm"] = math.nan
        raw += [(packet.timestamp_ns, source, packet.sequence, packet.values["norm"]) for packet in made]
        frames = framed(made, region, source, most=most)
        await tiers.say(region, [*frames, *random.Random(index).choices(frames, k=20)])

    for region in REGIONS:
        await tiers.regional(region).run(until_idle=True)
    await tiers.global_(REGIONS).run(until_idle=True)

    totals, norm = await tiers.totals(), np.array([row[3] for row in raw])
    found, finite = totals.aggregate.metrics["norm"], norm[np.isfinite(norm)]
    assert totals.counted == num_packets(await tiers.said_globally()) == len(raw) == 4500
    assert (found.count, found.num_non_finite) == (4497, 3)
    assert (found.min, found.max) == (finite.min(), finite.max())
    assert found.last == max(row for row in raw if math.isfinite(row[3]))[3]
    assert found.sum == pytest.approx(finite.sum(), rel=1e-9)
    assert found.mean == pytest.approx(finite.mean(), rel=1e-9)
    assert found.m2 == pytest.approx(((finite - finite.mean()) ** 2).sum(), rel=1e-9)
    sketch = read_sketch(found.sketch)
    for rank in (0.05, 0.5, 0.95):
        true_rank = np.searchsorted(np.sort(finite), sketch.get_quantile(rank)) / len(finite)
        assert abs(true_rank - rank) <= sketch.normalized_rank_error(False)  # six deviations here


async def test_packets_under_their_own_seals_frames_and_tables_come_to_one_exact_total(tiers: Tiers) -> None:
    alone, framed_, tabled = packets(700, seed=1), packets(700, seed=2), packets(700, seed=3)
    await tiers.say("north", alone, "worker-1")
    await tiers.say("north", framed(framed_, source="worker-2"))
    await tiers.say("north", tables(tabled, "worker-3"))
    await tiers.say("north", [*tables(tabled, "worker-3", most=300), *framed(framed_, source="worker-2", most=9)])

    await tiers.regional("north").run(until_idle=True)
    await tiers.global_(["north"]).run(until_idle=True)

    totals, every = await tiers.totals(), [*alone, *framed_, *tabled]
    loss = np.array([packet.values["loss"] for packet in every])
    found = totals.aggregate.metrics["loss"]
    assert (totals.counted, totals.duplicates, totals.gaps) == (2100, 1400, 0)
    assert (found.count, found.min, found.max) == (2100, loss.min(), loss.max())
    assert found.sum == pytest.approx(loss.sum(), rel=1e-9)
    assert found.m2 == pytest.approx(((loss - loss.mean()) ** 2).sum(), rel=1e-9)
    newest = max(every, key=lambda packet: packet.timestamp_ns)
    assert found.last == newest.values["loss"]


async def test_full_windows_reach_1024_packets_an_aggregate(tiers: Tiers) -> None:
    await tiers.say("north", framed(packets(2048)))

    aggregator = tiers.regional("north")
    await aggregator.run(until_idle=True)
    await tiers.global_(["north"]).run(until_idle=True)

    regional, global_ = await tiers.said_by("north"), await tiers.said_globally()
    shown = aggregator.figures
    assert (shown.num_full, shown.num_partial, shown.num_packets) == (64, 0, 2048)
    assert [(one.sequence, one.num_packets, one.partial) for one in regional] == [
        (number, 32, False) for number in range(1, 65)
    ]
    assert [(one.num_packets, one.num_messages, one.partial) for one in global_] == [(1024, 32, False)] * 2
    totals = await tiers.totals()
    assert (totals.counted, totals.regional, totals.global_, totals.duplicates, totals.gaps) == (2048, 64, 2, 0, 0)


async def test_packets_sent_again_in_another_frame_count_once_also_after_a_restart(tiers: Tiers) -> None:
    made = packets(100)
    await tiers.say("north", framed(made, most=25))
    await tiers.regional("north", "first").run(until_idle=True)

    await tiers.say("north", framed(made, most=32))
    await tiers.regional("north", "restarted").run(until_idle=True)
    await tiers.global_(["north"]).run(until_idle=True)

    totals = await tiers.totals()
    assert (totals.counted, totals.duplicates) == (100, 100)
    assert totals.aggregate.metrics["loss"].count == 100


async def test_what_an_aggregator_left_behind_is_folded_by_the_next(tiers: Tiers, redis: Redis) -> None:
    await tiers.say("north", framed(packets(640)))
    paused = PausedOutbox(redis)
    dead = asyncio.create_task(tiers.regional("north", "dead", outbox=paused).run(until_idle=True))
    await paused.reached.wait()
    dead.cancel()
    await asyncio.gather(dead, return_exceptions=True)

    await tiers.regional("north", "next", reclaim_after_ms=0).run(until_idle=True)

    assert num_packets(await tiers.said_by("north")) == 640
    assert await num_pending(redis, tiers.region("north", "telemetry"), "regional") == 0


async def test_an_aggregator_paused_past_its_lease_folds_nothing(tiers: Tiers, redis: Redis) -> None:
    telemetry = tiers.region("north", "telemetry")
    await tiers.say("north", framed(packets(320)))
    outbox = PausedOutbox(redis)
    paused = asyncio.create_task(tiers.regional("north", "paused", outbox=outbox).run(until_idle=True))
    await outbox.reached.wait()

    await redis.xautoclaim(telemetry, "regional", "second", 0, "0-0", count=1000)
    outbox.go_on.set()
    await paused

    assert {error.stream for error in outbox.refused} == {telemetry}
    assert await tiers.said_by("north") == []
    await tiers.regional("north", "second").run(until_idle=True)
    assert num_packets(await tiers.said_by("north")) == 320


@pytest.mark.parametrize("tier", ["regional", "global"])
async def test_what_a_second_one_settled_meanwhile_is_not_folded_again(tiers: Tiers, redis: Redis, tier: str) -> None:
    await tiers.say("north", framed(packets(320), most=20))
    if tier == "global":
        await tiers.regional("north").run(until_idle=True)
    outbox = PausedOutbox(redis)
    make = partial(tiers.regional, "north") if tier == "regional" else partial(tiers.global_, ["north"])
    paused = asyncio.create_task(make("paused", outbox=outbox).run(until_idle=True))
    await outbox.reached.wait()

    await make("second", reclaim_after_ms=0).run(until_idle=True)
    outbox.go_on.set()
    await paused
    await tiers.regional("north").run(until_idle=True)
    await tiers.global_(["north"]).run(until_idle=True)

    assert outbox.refused
    totals = await tiers.totals()
    assert (totals.counted, totals.duplicates) == (320, 0)
    assert num_packets(await tiers.said_globally()) == 320


async def test_a_global_aggregator_killed_before_it_acknowledges_folds_nothing_twice(
    tiers: Tiers, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "by_slot", True)  # as a Cluster does
    await tiers.say("north", framed(packets(640)))
    await tiers.regional("north").run(until_idle=True)
    with pytest.raises(LostError):
        await tiers.global_(["north"], "killed", outbox=DyingOutbox(redis)).run(until_idle=True)

    await tiers.global_(["north"], "next", reclaim_after_ms=0).run(until_idle=True)

    totals = await tiers.totals()
    assert (totals.counted, totals.regional) == (640, 20)
    assert num_packets(await tiers.said_globally()) == 640
    assert await num_pending(redis, tiers.region("north", "regional"), "global") == 0


async def test_three_aggregators_of_one_region_fold_each_packet_once(tiers: Tiers, redis: Redis) -> None:
    made = packets(3000)
    await tiers.say("north", framed(made, most=13))

    await asyncio.gather(*(tiers.regional("north", name).run(until_idle=True) for name in "abc"))
    await tiers.global_(["north"]).run(until_idle=True)

    totals = await tiers.totals()
    assert (totals.counted, totals.duplicates) == (3000, 0)
    assert totals.aggregate.metrics["loss"].sum == pytest.approx(math.fsum(packet.values["loss"] for packet in made))
    sequences = [aggregate.sequence for aggregate in await tiers.said_by("north")]
    assert sequences == list(range(1, len(sequences) + 1))
    assert await bodies(redis, key(tiers.run_id, "dead")) == []


async def test_a_forged_frame_is_set_aside_and_its_neighbours_are_folded(tiers: Tiers, redis: Redis) -> None:
    made = packets(64)
    await tiers.say("north", framed(made[:32]))
    await put(redis, tiers.region("north", "telemetry"), b"ES" + b"\x00" * 200)
    await tiers.say("north", framed(made[32:]))

    await tiers.regional("north").run(until_idle=True)

    assert num_packets(await tiers.said_by("north")) == 64
    [(_, letter)] = await redis.execute_command("XRANGE", key(tiers.run_id, "dead"), "-", "+")
    assert letter[b"group"] == b"regional"
    assert await num_pending(redis, tiers.region("north", "telemetry"), "regional") == 0


async def test_a_partial_window_is_closed_by_the_clock_while_nothing_else_comes(tiers: Tiers, redis: Redis) -> None:
    stopping, outbox = asyncio.Event(), PausedOutbox(redis)
    running = asyncio.create_task(tiers.regional("north", outbox=outbox, clock=time.monotonic).run(stopping))

    await tiers.say("north", framed(packets(20)))
    await outbox.reached.wait()  # only the clock can have closed it: 20 packets fill no window
    outbox.go_on.set()
    stopping.set()
    await running

    [aggregate] = await tiers.said_by("north")
    assert (aggregate.num_packets, aggregate.partial) == (20, True)


async def test_told_to_stop_it_settles_what_is_in_hand(tiers: Tiers, redis: Redis) -> None:
    stopping, taken_in = asyncio.Event(), asyncio.Event()
    aggregator = tiers.regional("north")
    fold = aggregator.pipeline.fold

    def fold_and_tell(opened: Opened, now_s: float) -> None:
        fold(opened, now_s)
        taken_in.set()

    aggregator.pipeline = replace(aggregator.pipeline, fold=fold_and_tell)
    await tiers.say("north", framed(packets(20)))
    async with asyncio.TaskGroup() as group:
        group.create_task(aggregator.run(stopping))
        await taken_in.wait()
        assert await tiers.said_by("north") == []  # the clock stands still, so nothing closes the window
        stopping.set()

    [aggregate] = await tiers.said_by("north")
    assert (aggregate.num_packets, aggregate.partial) == (20, True)
    assert await num_pending(redis, tiers.region("north", "telemetry"), "regional") == 0


@pytest.mark.parametrize("last", ["18446744073709551615-5", "9300000000000-0"], ids=["the last time", "beyond 63 bits"])
@pytest.mark.parametrize("made", [framed, partial(tables, source="worker-0")], ids=["frames", "tables"])
async def test_an_entry_far_ahead_puts_nothing_that_follows_out_of_its_time(
    redis: Redis, redis_reader: Redis, run_id: str, last: str, made: Callable[[Sequence[Any]], Sequence[Message]]
) -> None:
    """Whoever may add to the stream may choose an id; all that are added after it lie beside it."""
    tiers = await Tiers(redis, redis_reader, run_id).open()
    rows, now_ns = packets(64), time.time_ns()
    for row in rows:
        row.timestamp_ns = now_ns
    rows[40].timestamp_ns += 86_400 * 10**9  # by a clock that is wrong: it is counted, and told
    await redis.xadd(tiers.region("north", "telemetry"), {"m": b"junk"}, id=last)
    await tiers.say("north", made(rows))

    await tiers.regional("north").run(asyncio.Event(), until_idle=True)

    told = await tiers.said_by("north")
    assert (num_packets(told), sum(each.num_skewed for each in told)) == (64, 1)
    assert max(each.last_timestamp_ns for each in told) <= time.time_ns()
