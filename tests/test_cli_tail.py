"""`esper tail`: what a run says, one line each, at every tier."""

from __future__ import annotations

import json
import struct

from esper.leyline import contracts as pb
from esper.leyline.entries import entry_ms
from esper.leyline.kinds import Role
from tests.cli_kit import called
from tests.scripted import ScriptedRun, accepted


async def tailed(run: ScriptedRun, *arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of `esper tail` on the run."""
    return await called("tail", "--run", run.name, *arguments)


async def test_global_aggregates_show_counts_and_means(run: ScriptedRun) -> None:
    statistics = pb.MetricStatistics(count=2, sum=1.0, mean=0.5, min=0.25, max=0.75, last=0.75)
    aggregate = pb.AggregatedTelemetry(version=1, sequence=1, num_packets=2, max_step=9, metrics={"loss": statistics})
    entry_id = await run.say("global", Role.GLOBAL, "global", aggregate)

    status, out, _ = await tailed(run, "--since", "0", "--count", "1")

    when, _, what = out.partition("  ")
    assert (status, what) == (0, "global #1  2 packets  step 9  loss 0.5\n")
    assert when.endswith(f":{entry_ms(entry_id) % 60_000 / 1_000:06.3f}")


async def test_an_aggregate_tells_of_each_kind_of_event_once_with_its_detail(run: ScriptedRun) -> None:
    told = [("kernel.not_prefetched", ""), ("command.failed", "an older one"), ("command.failed", "does not fit")]
    level = pb.TelemetryLevel.TELEMETRY_WARNING
    events = [
        pb.TelemetryEvent(event_id=str(number), description=name, level=level, attributes={"detail": detail})
        for number, (name, detail) in enumerate(told)
    ]
    aggregate = pb.AggregatedTelemetry(version=1, sequence=1, num_packets=1, max_step=9, events=events)
    await run.say("global", Role.GLOBAL, "global", aggregate)

    _, out, _ = await tailed(run, "--since", "0", "--count", "1")

    told_once = "kernel.not_prefetched  command.failed: does not fit"
    assert out.split()[1:] == f"global #1 1 packet step 9 {told_once}".split()


async def test_an_event_that_gives_a_reason_is_told_with_it(run: ScriptedRun) -> None:
    why = "accuracy 10.9 points below 1; at most 2"
    event = pb.TelemetryEvent(event_id="1", description="pruning.undone", attributes={"reason": why, "channels": "4"})
    aggregate = pb.AggregatedTelemetry(version=1, sequence=1, num_packets=1, max_step=9, events=[event])
    await run.say("global", Role.GLOBAL, "global", aggregate)

    _, out, _ = await tailed(run, "--since", "0", "--count", "1")

    assert out.endswith(f"  pruning.undone: {why}\n")


async def test_nothing_that_a_run_says_moves_the_cursor_of_a_terminal(run: ScriptedRun) -> None:
    told = accepted("c1\x1b[2J", "1-0")
    told.detail = "\x1b]0;title\x07\nesper: all is well"
    await run.say("receipts", Role.COORDINATOR, "coordinator", told)

    _, out, _ = await tailed(run, "--tier", "receipts", "--since", "0", "--count", "1")

    assert out.partition("  ")[2].startswith("c1?[2J  accepted by coordinator")
    assert out.endswith(": ?]0;title??esper: all is well\n") and out.count("\n") == 1


async def test_frames_of_workers_show_the_newest_values(run: ScriptedRun) -> None:
    await run.beat(1)
    packet = pb.TelemetryPacket(
        version=1,
        timestamp_ns=1,
        level=pb.TelemetryLevel.TELEMETRY_INFO,
        sequence=1,
        global_step=7,
        values={"loss": 0.25},
    )
    frame = pb.TelemetryFrame(version=1, source="worker-0", incarnation=1, region="region-0", packets=[packet])
    await run.say("region-0/telemetry", Role.WORKER, "worker-0", frame)

    _, out, _ = await tailed(run, "--tier", "worker", "--since", "0", "--count", "1")

    assert out.partition("  ")[2] == "worker-0  1 packet  step 7  loss 0.25\n"


async def test_tables_of_workers_show_their_last_row(run: ScriptedRun) -> None:
    await run.beat(1)
    table = pb.ColumnarFrame(
        version=1,
        source="worker-0",
        incarnation=1,
        region="region-0",
        first_sequence=1,
        schema=pb.MetricSchema(version=1, names=["loss", "lr"]),
        timestamp_ns=struct.pack("<2Q", 1, 2),
        global_step=struct.pack("<2Q", 7, 8),
        values=struct.pack("<4d", 0.5, 0.25, 0.1, 0.2),
    )
    await run.say("region-0/telemetry", Role.WORKER, "worker-0", table)

    _, out, _ = await tailed(run, "--tier", "worker", "--since", "0", "--count", "1")

    assert out.partition("  ")[2] == "worker-0  2 rows  step 8  loss 0.25  lr 0.2\n"


async def test_json_is_one_object_a_line_with_the_sealing_role(run: ScriptedRun) -> None:
    await run.answer(accepted("c1", "5-0"))
    await run.answer(accepted("c2", "6-0"))

    _, out, _ = await tailed(run, "--tier", "receipts", "--since", "0", "--count", "2", "--json")
    said = [json.loads(line) for line in out.splitlines()]

    assert [receipt["command_id"] for receipt in said] == ["c1", "c2"]
    assert {(receipt["type"], receipt["role"]) for receipt in said} == {("CommandReceipt", "coordinator")}


async def test_since_reads_after_an_entry(run: ScriptedRun) -> None:
    first = await run.answer(accepted("c1", "5-0"))
    await run.answer(accepted("c2", "6-0"))

    _, out, _ = await tailed(run, "--tier", "receipts", "--since", first, "--count", "1")

    assert "c2" in out
