"""Figures told to a live run: packets that its aggregators take for those of any worker."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from esper.bench.output.telling import MOST_NAMES, carried, frames, name_of, tell
from esper.bus import connect, names, tail
from esper.errors import SettingError
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener
from esper.leyline.validate.messages import validate
from esper.narset.global_ import Global
from esper.narset.regional import Regional
from tests.figure_kit import absent, beside, timed
from tests.scripted import ScriptedRun


def worker_keyring(run: ScriptedRun, folder: Path, role: Role = Role.WORKER) -> Path:
    path = folder / "keyring.json"
    run.master.derive(run.run_id, [role]).save(path)
    return path


async def test_each_figure_is_a_packet_that_the_region_folds(
    run: ScriptedRun, redis: connect.Redis, tmp_path: Path
) -> None:
    figures = [*(timed(arm=f"arm {number}") for number in range(40)), beside(1.2), absent()]

    await run.say("eu/telemetry", Role.WORKER, "worker-0", next(iter(frames([timed()], "eu", 1))))

    told = await tell(figures, run.run_id, run.url, worker_keyring(run, tmp_path), "eu")

    region, opener = (
        Regional("eu"),
        Opener(run.master.derive(run.run_id, [Role.REGIONAL]), name="eu", guard=None, accept=(Domain.TELEMETRY,)),
    )
    packets: list[pb.TelemetryPacket] = []
    async with (
        asyncio.timeout(120),
        aclosing(tail.follow(redis, names.region_key(run.run_id, "eu", "telemetry"), "0")) as entries,
    ):
        async for entry_id, sealed in entries:
            opened = opener.open(sealed, entry_id, await connect.server_ms(redis))
            region.on_opened(opened, 0.0)
            packets += opened.message.packets  # type: ignore[attr-defined]
            if len(packets) == 1 + told:
                break
    own = packets[1:]  # behind the one that made the region
    assert told == len(figures) == len(own)
    assert [packet.sequence for packet in own] == list(range(1, told + 1))
    assert own[40].metrics[0].value == pytest.approx(3.6)
    assert own[41].events[0].description == "memory, fragmentation, mean: not measured: no GPU"


def test_a_gauge_is_named_after_its_row_and_carries_arm_shape_and_unit() -> None:
    [frame] = frames([beside(1.2)], "eu", 1)

    [point] = frame.packets[0].metrics
    assert (point.name, point.unit, point.type) == ("bench_sum_p50_ms", "ms", pb.MetricType.METRIC_GAUGE)
    assert dict(point.labels) == {"arm": "numpy", "shape": "10 numbers"}


def test_names_of_any_length_and_kind_make_packets_that_are_sound() -> None:
    wild = timed("ä b/" * 100, "{a=1,b}" * 30, shape="é" * 200)

    [frame] = frames([wild], "eu", 1)

    validate(frame)
    assert not set("{}=,") & set(frame.packets[0].metrics[0].labels["arm"])
    assert name_of(wild).isidentifier()


async def test_a_region_that_nobody_folds_is_refused(run: ScriptedRun, tmp_path: Path) -> None:
    keyring = worker_keyring(run, tmp_path)
    with pytest.raises(SettingError, match="expected a run that has regions by now"):
        await tell([timed()], run.run_id, run.url, keyring, "")
    await run.say("eu/telemetry", Role.WORKER, "worker-0", next(iter(frames([timed()], "eu", 1))))

    with pytest.raises(SettingError, match="--region is 'ew'; expected one of eu"):
        await tell([timed()], run.run_id, run.url, keyring, "ew")


async def test_a_keyring_that_can_not_seal_telemetry_is_refused(run: ScriptedRun, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="expected one for worker"):
        await tell([timed()], run.run_id, run.url, worker_keyring(run, tmp_path, Role.OBSERVER), "eu")


def test_no_more_is_told_than_an_aggregate_has_names_for() -> None:
    plain = [timed(arm=f"arm {number}") for number in range(700)]
    aimed, tails = replace(timed(arm="aimed"), target=4.0), [replace(figure, stat="p99") for figure in plain]

    told = carried([*tails, *plain, aimed, absent()])

    assert len(told) == MOST_NAMES + 1
    assert {figure.stat for figure in told} == {"p50", absent().stat}
    assert told[-2:] == [aimed, absent()]


def test_a_full_suite_leaves_the_metrics_of_a_run_in_the_same_aggregate() -> None:
    figures, region, total = [timed(arm=f"arm {number}") for number in range(2_000)], Regional("eu"), Global(["eu"])
    for frame in frames(carried(figures), "eu", 1):
        region.on_frame(frame, 0.0)
    own = {f"own {number}": 1.0 for number in range(400)}
    packet = pb.TelemetryPacket(version=1, timestamp_ns=2, sequence=1, values=own)
    region.on_frame(pb.TelemetryFrame(version=1, source="w", incarnation=1, region="eu", packets=[packet]), 0.0)

    for aggregate in region.take(1.0):
        total.on_aggregate(aggregate, 1.0)
    (found,) = total.take(2.0)

    assert len(found.metrics) == MOST_NAMES + len(own)
