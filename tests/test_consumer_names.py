"""No two processes of one name read under one consumer's name: what the first holds is not the second one's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from esper.bus.names import region_key
from tests.bus_kit import put
from tests.metrics_kit import serving
from tests.scripted import ScriptedRun

SOURCES = {"regional": "telemetry", "global": "regional"}


@pytest.mark.parametrize("role", SOURCES)
async def test_an_aggregator_that_is_started_again_reads_under_another_name(
    role: str, run: ScriptedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = region_key(run.run_id, "r0", SOURCES[role])
    await run.redis.xgroup_create(stream, role, id="0", mkstream=True)
    async with serving(role, run, tmp_path, monkeypatch):
        first = await consumer_of(run, stream, role)
    async with serving(role, run, tmp_path, monkeypatch):
        second = await consumer_of(run, stream, role)

    assert first != second


async def consumer_of(run: ScriptedRun, stream: str, group: str) -> bytes:
    """The one that reads. Redis knows of it once it was given something, be it junk."""
    await put(run.redis, stream, b"junk")
    async with asyncio.timeout(60):
        while not (found := await run.redis.xinfo_consumers(stream, group)):
            await asyncio.sleep(0)
    [consumer] = found
    name: bytes = consumer["name"]
    return name
