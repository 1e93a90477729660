"""A global tier played by a test: aggregates of known values under real seals, and their export."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from esper.bus import names
from esper.cli.exporting import exporting, for_scrapes, into_files
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.narset.running import BOUNDS
from esper.narset.statistics import Origin, of_values
from esper.runtime import access
from esper.runtime.exporters.exposition import Exposition
from esper.runtime.exporters.loop import Export
from tests.scripted import ScriptedRun

START_NS = 1_700_000_000_000_000_000


def aggregate(sequence: int, **metrics: Sequence[float]) -> pb.AggregatedTelemetry:
    """Of packets that measured these, the last of them at `sequence` seconds."""
    at_ns, number = START_NS + sequence * 10**9, max(map(len, metrics.values()))
    folded = {
        name: of_values(np.array(values), [Origin(at_ns, "worker-0", place + 1) for place in range(len(values))])
        for name, values in metrics.items()
    }
    return pb.AggregatedTelemetry(
        version=1,
        sequence=sequence,
        num_packets=number,
        num_messages=1,
        num_shed=2,
        first_timestamp_ns=at_ns - 10**6,
        last_timestamp_ns=at_ns,
        max_step=10 * sequence,
        level_counts={"INFO": number},
        metrics={name: statistics.message() for name, statistics in folded.items()},
    )


async def say(run: ScriptedRun, *aggregates: pb.AggregatedTelemetry) -> list[str]:
    """Ids of the entries."""
    return [await run.say("global", Role.GLOBAL, "global", each) for each in aggregates]


async def exported(run: ScriptedRun, kind: str, path: Path, *, most_bytes: int = 1 << 20) -> Export:
    """Carry over all that is there now, as a process started anew."""
    assert kind in ("tensorboard", "jsonl")
    found = await access.find(run.name)
    with into_files("jsonl" if kind == "jsonl" else "tensorboard", path, run.run_id, most_bytes=most_bytes) as sink:
        async with exporting(found, sink) as export:
            await export.run(asyncio.Event(), until_idle=True)
            return export


async def scraped(run: ScriptedRun, bounds: tuple[float, ...] = BOUNDS) -> tuple[Exposition, Export]:
    """Fold all that is there now, as a process started anew."""
    found = await access.find(run.name)
    async with for_scrapes(found, bounds, "test") as sink, exporting(found, sink) as export:
        await export.run(asyncio.Event(), until_idle=True)
        return sink, export


def totals_key(run: ScriptedRun) -> str:
    return names.key(run.run_id, "totals")
