"""An aggregator's record that is gone, though what it wrote is there: noticed, told once, nothing lost or doubled."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from esper.bus.connect import Redis
from esper.bus.names import key
from esper.narset.regional import GAP_S, LOOK_EVERY_S, LOST_FOR_S, Regional
from esper.narset.totals import Totals
from tests.bus_kit import num_pending
from tests.packet_kit import framed, packets
from tests.tiers import PausedOutbox, Tiers

HALF, ALL = 320, 640


async def counted(tiers: Tiers) -> Totals:
    await tiers.global_(["north"]).run(until_idle=True)
    return await tiers.totals()


def losses(told: Sequence[MutableMapping[str, Any]]) -> list[str]:
    return [each["stream"] for each in told if each["event"] == "history.lost"]


@pytest.mark.parametrize("lives", [True, False], ids=["the process lives", "another process"])
async def test_what_a_region_folds_after_its_record_was_deleted_counts(tiers: Tiers, redis: Redis, lives: bool) -> None:
    regional, made = tiers.regional("north"), packets(ALL)
    await tiers.say("north", framed(made[:HALF]))
    await regional.run(until_idle=True)
    before = await counted(tiers)

    await redis.delete(tiers.region("north", "windows"))
    await tiers.say("north", framed(made[HALF:]))
    with capture_logs() as told:
        await (regional if lives else tiers.regional("north")).run(until_idle=True)
        after = await counted(tiers)

    assert (before.counted, after.counted) == (HALF, ALL)
    assert (after.gaps, after.duplicates) == (0, 0)
    assert losses(told) == [tiers.region("north", "regional")]
    assert await num_pending(redis, tiers.region("north", "telemetry"), "regional") == 0


@pytest.mark.parametrize("lives", [True, False], ids=["the process lives", "another process"])
async def test_what_a_region_folds_after_its_node_of_a_cluster_lost_all_counts_where_the_total_stayed(
    tiers: Tiers, redis: Redis, lives: bool
) -> None:
    regional, made = tiers.regional("north"), packets(ALL)
    await tiers.say("north", framed(made[:HALF]))
    await regional.run(until_idle=True)
    before = await counted(tiers)

    await redis.delete(*[tiers.region("north", name) for name in ("telemetry", "regional", "windows")])
    await tiers.say("north", framed(made[HALF:]))
    with capture_logs() as told:
        await (regional if lives else tiers.regional("north")).run(until_idle=True)
        after = await counted(tiers)

    assert (before.counted, after.counted) == (HALF, ALL)
    assert (after.gaps, after.duplicates) == (0, 0)
    assert tiers.region("north", "regional") in losses(told)


def test_of_what_a_region_met_before_its_record_was_lost_nothing_counts_as_missing() -> None:
    tier, gaps = Regional("north"), 0
    tier.load({b"lost": b"1800000000000"})

    for first, now_s in ((321, 0.0), (641, 1.0), (961, 2.0 + GAP_S)):
        tier.on_frame(framed(packets(first + 319)[first - 1 :], most=320)[0], now_s)
        gaps += sum(each.num_gaps for each in tier.take(now_s))
    tier.on_frame(framed(packets(1320)[1290:])[0], now_s)
    [last, *_] = [*tier.take(now_s), *tier.take(now_s + GAP_S)][-1:]

    assert (gaps, last.num_gaps) == (0, 10)


def test_an_hour_after_a_loss_what_a_source_says_first_is_expected_to_be_its_first_word() -> None:
    tier = Regional("north")
    tier.load({b"lost": b"1800000000000"})
    tier.take(0.0)
    kept, gaps = [], []

    for source, now_s in (("late", LOST_FOR_S - 1), ("later", LOST_FOR_S + LOOK_EVERY_S)):
        tier.take(now_s)
        [frame] = framed(packets(64)[32:], most=32)
        frame.source = source
        tier.on_frame(frame, now_s)
        tier.take(now_s)
        gaps.append(sum(each.num_gaps for each in tier.take(now_s + GAP_S)))
        kept.append(tier.changed().get("lost"))

    assert gaps == [0, 32]
    assert kept == [b"1800000000000", b""]
    assert "lost" not in tier.changed()


async def test_what_a_living_process_has_folded_before_is_not_folded_again(tiers: Tiers, redis: Redis) -> None:
    regional, made = tiers.regional("north"), packets(HALF)
    await tiers.say("north", framed(made))
    await regional.run(until_idle=True)

    await redis.delete(tiers.region("north", "windows"))
    await tiers.say("north", framed(made, most=16))
    await regional.run(until_idle=True)

    assert (await counted(tiers)).counted == HALF


@pytest.mark.parametrize("lives", [True, False], ids=["the process lives", "another process"])
async def test_a_record_that_is_lost_again_is_told_again(tiers: Tiers, redis: Redis, lives: bool) -> None:
    regional, made = tiers.regional("north"), packets(ALL)
    with capture_logs() as told:
        for start in range(0, ALL, 160):
            await redis.delete(tiers.region("north", "windows"))
            await tiers.say("north", framed(made[start : start + 160]))
            await (regional if lives else tiers.regional("north")).run(until_idle=True)

    assert (await counted(tiers)).counted == ALL
    assert len(losses(told)) == 3


async def test_a_process_that_is_about_to_settle_notices_it_and_tells_it_once(tiers: Tiers, redis: Redis) -> None:
    made, outbox = packets(ALL), PausedOutbox(redis)
    await tiers.say("north", framed(made[:HALF]))
    await tiers.regional("north").run(until_idle=True)
    await tiers.say("north", framed(made))
    running = asyncio.create_task(tiers.regional("north", outbox=outbox).run(until_idle=True))
    await outbox.reached.wait()

    await redis.delete(tiers.region("north", "windows"))
    with capture_logs() as told:
        outbox.go_on.set()
        await running

    assert ((await counted(tiers)).counted, len(losses(told))) == (ALL, 1)


async def test_of_a_total_that_is_deleted_alone_it_is_known_what_it_was(tiers: Tiers, redis: Redis) -> None:
    regional, global_, made = tiers.regional("north"), tiers.global_(["north"]), packets(ALL)
    await tiers.say("north", framed(made[:HALF]))
    await regional.run(until_idle=True)
    await global_.run(until_idle=True)

    await redis.delete(key(tiers.run_id, "totals"))
    await tiers.say("north", framed(made[HALF:]))
    await regional.run(until_idle=True)
    with capture_logs() as told:
        await global_.run(until_idle=True)

    assert losses(told) == [key(tiers.run_id, "global")]
    assert ((await tiers.totals()).counted, (await tiers.said_globally())[-1].sequence) == (ALL, 2)


async def test_a_region_that_has_never_said_anything_begins_at_one_and_tells_of_no_loss(tiers: Tiers) -> None:
    await tiers.say("north", framed(packets(64)))
    with capture_logs() as told:
        await tiers.regional("north").run(until_idle=True)

    assert [each.sequence for each in await tiers.said_by("north")] == [1, 2]
    assert losses(told) == []
