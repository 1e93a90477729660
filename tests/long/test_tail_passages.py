"""`esper tail` shows the part of a run that was asked for: by tier, source, level, metric and time."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import pytest

from esper.bus import connect, names, tail
from esper.cli.output.moments import NOW
from esper.cli.output.passages import ON_ITS_WAY_S, Passage, Reading, UnshownError
from esper.cli.tail import folded
from esper.client import Controller
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.leyline.kinds import Role
from esper.leyline.seal import Opened
from tests.bus_kit import own_server
from tests.cli_kit import called
from tests.export_kit import aggregate, say
from tests.scripted import ScriptedRun, accepted, failed, listed

Level = pb.TelemetryLevel


async def tailed(run: ScriptedRun, *arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    async with asyncio.timeout(120):
        return await called("tail", run.name, *arguments)


async def told(run: ScriptedRun, *arguments: str) -> list[dict[str, object]]:
    """Objects that it prints for all there is."""
    status, out, err = await tailed(run, "--json", "--no-follow", *arguments)
    assert (status, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def packet(sequence: int, level: pb.TelemetryLevel, **values: float) -> pb.TelemetryPacket:
    return pb.TelemetryPacket(version=1, timestamp_ns=1, level=level, sequence=sequence, values=values)


async def frame(run: ScriptedRun, worker: str, *packets: pb.TelemetryPacket) -> str:
    region = f"region-{worker[-1]}"
    made = pb.TelemetryFrame(version=1, source=worker, incarnation=1, region=region, packets=packets)
    return await run.say(f"{region}/telemetry", Role.WORKER, worker, made)


async def test_the_newest_are_shown_in_order_and_it_ends(run: ScriptedRun) -> None:
    ids = await say(run, *(aggregate(number, loss=[1.0]) for number in range(1, 6)))

    assert [each["entry_id"] for each in await told(run, "-n", "2")] == ids[3:]
    assert [each["entry_id"] for each in await told(run)] == ids
    assert [each["entry_id"] for each in await told(run, "--since", ids[1], "--until", ids[3])] == ids[2:4]
    assert [each["entry_id"] for each in await told(run, "-n", "9", "--until", ids[1])] == ids[:2]


async def test_streams_of_several_regions_are_one_in_the_order_of_time(run: ScriptedRun) -> None:
    await run.beat(1)
    ids = [await frame(run, f"worker-{number % 2}", packet(1, Level.TELEMETRY_INFO, loss=1.0)) for number in range(6)]

    ordered = sorted(ids, key=entry_order)
    assert [each["entry_id"] for each in await told(run, "--tier", "telemetry")] == ordered
    assert [each["entry_id"] for each in await told(run, "--tier", "worker", "-n", "3")] == ordered[3:]


async def test_sources_levels_and_metrics_are_chosen_of_frames(run: ScriptedRun) -> None:
    await run.beat(1)
    await frame(
        run,
        "worker-0",
        packet(1, Level.TELEMETRY_INFO, loss=1.0, lr=0.1),
        packet(2, Level.TELEMETRY_WARNING, loss=2.0, lr=0.1),
        packet(3, Level.TELEMETRY_DEBUG, lr=0.3),
    )
    await frame(run, "worker-1", packet(1, Level.TELEMETRY_CRITICAL, loss=3.0))

    def values(found: list[dict[str, object]]) -> list[object]:
        return [each["values"] for one in found for each in one["packets"]]  # type: ignore[attr-defined]

    assert values(await told(run, "--tier", "worker", "--source", "worker-1")) == [{"loss": 3.0}]
    assert values(await told(run, "--tier", "worker", "--level", "warning", "--metric", "lo*")) == [
        {"loss": 2.0},
        {"loss": 3.0},
    ]
    assert values(await told(run, "--tier", "worker", "--metric", "lr")) == [{"lr": 0.1}, {"lr": 0.1}, {"lr": 0.3}]
    assert await told(run, "--tier", "worker", "--metric", "nothing") == []


async def test_columns_of_tables_are_chosen(run: ScriptedRun) -> None:
    await run.beat(1)
    table = pb.ColumnarFrame(
        version=1,
        source="worker-0",
        incarnation=1,
        region="region-0",
        first_sequence=1,
        schema=pb.MetricSchema(version=1, names=["accuracy", "loss", "lr"], units=["", "nats", ""]),
        timestamp_ns=struct.pack("<2Q", 1, 2),
        global_step=struct.pack("<2Q", 7, 8),
        values=struct.pack("<6d", 0.9, 0.8, 0.5, 0.25, 0.1, 0.2),
        level=Level.TELEMETRY_INFO,
    )
    await run.say("region-0/telemetry", Role.WORKER, "worker-0", table)

    _, out, _ = await tailed(run, "--tier", "worker", "--metric", "l*", "-n", "1")

    assert out.endswith("  worker-0  2 rows  step 8  loss 0.25  lr 0.2\n")
    assert await told(run, "--tier", "worker", "--level", "error") == []


async def test_aggregates_are_chosen_by_level_and_their_metrics_by_name(run: ScriptedRun) -> None:
    calm, loud = aggregate(1, loss=[1.0], lr=[0.1]), aggregate(2, loss=[2.0], lr=[0.1])
    loud.level_counts["ERROR"] = 1
    loud.events.add(description="value.non_finite", level=Level.TELEMETRY_ERROR)
    loud.events.add(description="command.applied", level=Level.TELEMETRY_INFO)
    await say(run, calm, loud)

    [found] = await told(run, "--level", "error", "--metric", "loss")

    assert (found["sequence"], list(found["metrics"])) == ("2", ["loss"])  # type: ignore[call-overload]
    assert [event["description"] for event in found["events"]] == ["value.non_finite"]  # type: ignore[attr-defined]


async def test_receipts_that_refuse_are_warnings(run: ScriptedRun) -> None:
    await run.answer(accepted("c1", "5-0"))
    refusal = failed(pb.ReasonCode.REASON_GATE_FAILED, "no gain")
    refusal.command_id = "c2"
    await run.answer(refusal)

    assert [each["command_id"] for each in await told(run, "--tier", "receipts", "--level", "warning")] == ["c2"]
    assert [each["command_id"] for each in await told(run, "--tier", "receipts", "--source", "coord*")] == ["c1"]


async def test_states_and_field_reports_read_as_lines(run: ScriptedRun) -> None:
    seed = pb.SeedState(seed_id="s0", stage=pb.SeedLifecycleStage.SEED_STAGE_TRAINING)
    state = pb.SystemStatePacket(
        version=1,
        current_epoch=3,
        global_step=300,
        validation_accuracy=0.9,
        training_loss=0.25,
        source_subsystem="worker-0",
        seed_states=[seed],
    )
    report = pb.FieldReport(
        version=1,
        report_id="s0/10-400",
        seed_id="s0",
        blueprint_id="lora",
        outcome=pb.FieldReportOutcome.FIELD_REPORT_SUCCESS,
        stage=pb.SeedLifecycleStage.SEED_STAGE_FOSSILIZED,
        observed_from_step=10,
        observed_to_step=400,
        metrics={"gain_mean": 0.125, "lifetime_steps": 390.0, "bytes": 2048.0},
    )
    for each in (state, report):
        await run.say("state", Role.WORKER, "worker-0", each)

    _, out, _ = await tailed(run, "--tier", "state", "--no-follow")

    assert [line.partition("  ")[2] for line in out.splitlines()] == [
        "worker-0  epoch 3  step 300  accuracy 0.9  loss 0.25  s0 TRAINING",
        "s0  success (lora)  FOSSILIZED  steps 10-400  bytes 2048  gain_mean 0.125  lifetime_steps 390",
    ]
    assert [each["seed_id"] for each in await told(run, "--tier", "state", "--metric", "gain*")] == ["s0"]


async def test_followed_it_shows_the_newest_and_then_what_comes(run: ScriptedRun) -> None:
    ids = await say(run, aggregate(1, loss=[1.0]), aggregate(2, loss=[1.0]))
    following = asyncio.create_task(tailed(run, "-n", "1", "--follow", "--count", "2", "--json"))
    while not following.done():  # it is not known when it begins to follow
        ids += await say(run, aggregate(len(ids) + 1, loss=[1.0]))
        await asyncio.wait([following], timeout=0.05)

    _, out, _ = await following

    shown = [json.loads(line)["entry_id"] for line in out.splitlines()]
    assert len(shown) == 2 and ids.index(shown[1]) == ids.index(shown[0]) + 1


async def test_of_servers_whose_clocks_differ_each_region_is_followed_from_where_it_stands(run: ScriptedRun) -> None:
    """As on a Cluster: the newest entry of one region lies behind all that another comes to say."""
    await run.beat(1)
    ahead = await frame(run, "worker-1", packet(1, Level.TELEMETRY_INFO, loss=1.0))
    await run.redis.execute_command(
        "XSETID", names.region_key(run.run_id, "region-1", "telemetry"), f"{entry_order(ahead)[0] + 100_000}-0"
    )
    await frame(run, "worker-1", packet(2, Level.TELEMETRY_INFO, loss=1.0))
    await frame(run, "worker-0", packet(1, Level.TELEMETRY_INFO, loss=1.0))

    shown = asyncio.create_task(tailed(run, "--tier", "worker", "-n", "1", "--follow", "--count", "2", "--json"))
    sequence = 1
    while not shown.done():  # it is not known when it begins to follow
        sequence += 1
        await frame(run, "worker-0", packet(sequence, Level.TELEMETRY_INFO, loss=1.0))
        await asyncio.wait([shown], timeout=0.05)

    _, out, _ = await shown
    sources = [json.loads(line)["source"] for line in out.splitlines()]
    assert sources == ["worker-1", "worker-0"]


async def test_followed_up_to_a_moment_it_ends_when_that_has_passed(run: ScriptedRun) -> None:
    await say(run, aggregate(1, loss=[1.0]))
    end_ms = int((time.time() + 0.2) * 1000)

    status, out, _ = await tailed(run, "--since", "0", "--until", f"{end_ms}-0", "--follow")

    assert (status, out.count("\n")) == (0, 1)


async def test_what_lies_there_is_shown_though_reading_it_takes_beyond_the_end(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_s = time.time()
    ids = await say(run, aggregate(1, loss=[1.0]), aggregate(2, loss=[1.0]))
    moments = chain([began_s], repeat(began_s + 600.0))
    for module in ("tail", "output.passages"):
        monkeypatch.setattr(f"esper.cli.{module}.time", SimpleNamespace(time=partial(next, moments)))

    _, out, _ = await tailed(run, "--since", "0", "--until", f"{int(began_s * 1000) + 300_000}-0", "--follow", "--json")

    assert [json.loads(line)["entry_id"] for line in out.splitlines()] == ids


async def test_what_has_come_is_shown_though_printing_it_takes_beyond_the_end(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_s = time.time()
    monkeypatch.setattr("esper.cli.output.passages.time", SimpleNamespace(time=lambda: began_s + 600.0))
    expected = await say(run, aggregate(1, loss=[1.0]))
    passage, shown = Passage("0", f"{int(began_s * 1000) + 300_000}-0", None, True), list[str]()
    async with Controller.connect(run.name, name="tail") as follower:
        reading = Reading(run.redis, follower.observer, await follower.streams("global"), lambda opened: opened)

        async with aclosing(reading.messages(passage)) as messages:
            async for opened in messages:
                shown.append(opened.entry_id)
                if len(shown) == 1:  # what comes while the first is shown is more than one read brings
                    expected += await say(run, *(aggregate(number, loss=[1.0]) for number in range(2, tail.COUNT + 9)))
                if len(shown) == 2:
                    until = time.monotonic() + 1.5 * ON_ITS_WAY_S
                    while time.monotonic() < until:  # nobody reads what is printed, as behind a pager
                        pass

    assert shown == expected


async def test_it_ends_then_though_one_region_of_two_goes_on_without_a_pause(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_s = time.time()
    monkeypatch.setattr("esper.cli.output.passages.time", SimpleNamespace(time=lambda: began_s + 600.0))
    passage = Passage(NOW, f"{int(began_s * 1000) + 300_000}-0", None, True)
    await run.beat(1)
    await frame(run, "worker-0", packet(1, Level.TELEMETRY_INFO, loss=1.0))
    unheard = list[str]()
    async with Controller.connect(run.name, name="tail") as follower, asyncio.timeout(30):
        streams, observer = await follower.streams("worker"), follower.observer
        [told] = await observer.newest(streams[0], 1)

        async def merged(_: Mapping[str, str]) -> AsyncGenerator[tuple[str, Opened], None]:
            unheard.append(await frame(run, "worker-1", packet(1, Level.TELEMETRY_INFO, loss=1.0)))
            while True:
                yield streams[0], told._replace(entry_id=f"{passage.until}9")
                await asyncio.sleep(0)

        monkeypatch.setattr(observer, "merged", merged)
        reading = Reading(run.redis, observer, streams, lambda opened: opened)
        async with aclosing(reading.messages(passage)) as messages:
            shown = [opened.entry_id async for opened in messages]

    assert shown == unheard


async def test_where_redis_is_gone_at_the_end_it_says_behind_which_entry_something_may_be_missing(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_s = time.time()
    monkeypatch.setattr("esper.cli.output.passages.time", SimpleNamespace(time=lambda: began_s + 600.0))
    passage, shown = Passage("0", f"{int(began_s * 1000) + 300_000}-0", None, True), list[str]()
    with own_server(short_directory) as server:
        async with connect.writer(server.url) as redis:
            with listed(short_directory, server.url, redis, monkeypatch) as run:
                expected = await say(run, aggregate(1, loss=[1.0]))
                async with Controller.connect(run.name, name="tail") as follower, connect.reader(server.url) as reader:
                    streams = await follower.streams("global")
                    reading = Reading(reader, follower.observer, streams, lambda opened: opened)
                    async with aclosing(reading.messages(passage)) as messages:
                        shown.append((await anext(messages)).entry_id)
                        expected += await say(run, aggregate(2, loss=[1.0]))
                        shown.append((await anext(messages)).entry_id)
                        server.kill()
                        with pytest.raises(UnshownError, match=r"; --since .* Redis at .* cannot be reached") as gone:
                            await anext(messages)

    assert shown == expected and gone.value.entry_id == expected[-1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--tier", "moon"], "tier is 'moon'; expected one of worker, telemetry"),
        (["--level", "loud"], "level is 'loud'; expected one of debug, info, warning, error, critical"),
        (["--since", "soon"], "since is 'soon'; expected an entry id such as"),
        (["--until", "5 minutes"], "until is '5 minutes'; expected an entry id such as"),
        (["-n", "0"], "-n"),
        (["--last", "many"], "--last"),
        (["--count", "-1"], "--count"),
        (["--since", "yesterday"], "yesterday"),
    ],
)
async def test_bad_input_is_one_line(run: ScriptedRun, arguments: list[str], expected: str) -> None:
    status, out, err = await tailed(run, *arguments)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert expected in err


def test_a_line_is_folded_between_figures_to_the_width_of_a_terminal() -> None:
    line = "1700000000000-0  global #1  2 packets  step 10  accuracy 0.93  loss 0.456"

    assert folded(line, 80) == line
    assert folded(line, 48).splitlines() == [
        "1700000000000-0  global #1  2 packets  step 10",
        "                 accuracy 0.93  loss 0.456",
    ]
    assert [each.split() for each in folded(line, 1).splitlines()][1:3] == [["2", "packets"], ["step", "10"]]
