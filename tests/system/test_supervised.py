"""A run from a file of which one role dies again and again, and an aggregator once: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from esper.bus import connect, names
from esper.bus.group.backlog import waiting
from esper.bus.publisher import Publisher
from esper.bus.runs import RunRecord
from esper.cli.running.fleet import fleet
from esper.cli.running.keeping import kept
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.narset.totals import decode
from esper.runtime.crew import control
from esper.runtime.crew.crew import Crew
from esper.runtime.crew.runfile import parse

FRAMES = 3  # each time
FILE = """
name = "supervised"
redis = "{url}"
runs_dir = "{runs}"
restart = {{first_s = 0.01, limit = 2}}
trainer.count = 0
coordinator.count = 0

[process.broken]
command = ["sh", "-c", "exit 3"]
"""


class Reporter:
    """A worker of which there is no more than its telemetry."""

    def __init__(self, record: RunRecord, redis: connect.Redis) -> None:
        self.redis, self.num_packets = redis, 0
        self.stream = names.region_key(record.run_id, "r0", "telemetry")
        self._sealer = Sealer(RoleKeyring.load(record.keyring("worker")), Role.WORKER, "worker-0")

    async def say(self, num_frames: int) -> None:
        """Frames that Redis acknowledges."""
        for _ in range(num_frames):
            self.num_packets += 1
            packet = pb.TelemetryPacket(
                version=1,
                sequence=self.num_packets,
                timestamp_ns=self.num_packets,
                level=pb.TelemetryLevel.TELEMETRY_INFO,
                values={"loss": 0.5},
            )
            frame = pb.TelemetryFrame(version=1, source="worker-0", incarnation=1, region="r0", packets=[packet])
            await Publisher(self.redis).add(self.stream, self._sealer.seal(frame))

    async def until_folded(self) -> None:
        """Until the region has nothing in hand."""
        while await waiting(self.redis, self.stream, "regional"):
            await asyncio.sleep(0)


def row_of(crew: Crew, name: str) -> dict[str, Any]:
    return next(row for row in crew.rows() if row["name"] == name)


async def said(crew: Crew, name: str, event: str, times: int = 1) -> None:
    """Until this was said of it so often."""
    async with aclosing(crew.notes.while_doing(asyncio.Event().wait())) as notes:
        async for note in notes:
            times -= (note.get("unit"), note["event"]) == (name, f"process.{event}")
            if not times:
                return


async def test_what_dies_is_started_again_or_given_up_and_the_rest_ends_in_order(
    short_directory: Path, tmp_path: Path, redis_url: str, redis: connect.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    read = parse(FILE.format(url=redis_url, runs=tmp_path / "runs"), "run.toml")
    async with fleet(read) as run, kept(run) as crew:
        reporter, socket = Reporter(run.record, redis), run.record.directory / control.NAME
        given_up, ready, died, again = (
            asyncio.create_task(said(crew, name, event, times))
            for name, event, times in (
                ("broken", "given_up", 1),
                ("regional-r0", "ready", 1),
                ("regional-r0", "died", 1),
                ("regional-r0", "ready", 2),
            )
        )
        await asyncio.sleep(0)  # they listen
        crew.start()
        keeping = asyncio.create_task(crew.keep())
        await reporter.say(FRAMES)
        await ready
        await reporter.until_folded()

        os.kill(row_of(crew, "regional-r0")["pid"], signal.SIGKILL)
        await died  # else Redis hands its next entry to the dead, for 5 s
        await reporter.say(FRAMES)
        await asyncio.gather(given_up, again)
        assert (row_of(crew, "broken")["restarts"], row_of(crew, "regional-r0")["restarts"]) == (2, 1)
        await reporter.say(FRAMES)
        down = asyncio.create_task(asyncio.to_thread(lambda: list(control.ask(socket, {"do": "down"}, 60.0))))
        await keeping

        assert await crew.drain()
        notes = await down

    stopped = [note["unit"] for note in notes if note["event"] == "process.stopped"]
    assert stopped == ["regional-r0", "global"]
    assert [note for note in notes if note["event"] in ("process.killed", "tier.unsettled")] == []
    assert "regional-r0" in (run.local.logs / "regional-r0.log").read_text()
    fields: Any = await redis.hgetall(names.key(run.record.run_id, "totals"))
    totals = decode(fields)
    assert (totals.counted, totals.duplicates, totals.gaps) == (reporter.num_packets, 0, 0) == (3 * FRAMES, 0, 0)
