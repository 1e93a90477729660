"""The exporter as a process: killed in the middle of its work it leaves each aggregate in its file once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from esper.leyline.kinds import Role
from tests.export_kit import aggregate, say
from tests.scripted import ScriptedRun

KILLS = 3
PART = 300


async def started(run: ScriptedRun, path: Path) -> asyncio.subprocess.Process:
    keyring = path.with_name("observer.json")
    run.master.derive(run.run_id, [Role.OBSERVER]).save(keyring)
    told = {"EXPORT": "jsonl", "EXPORT_PATH": path, "RUN": run.run_id, "REDIS_URL": run.url, "KEYRING": keyring}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "esper.workers.exporter"),
        env=os.environ | {f"ESPER_{name}": str(value) for name, value in told.items()},
        stdout=asyncio.subprocess.DEVNULL,
    )


async def until_lines(path: Path, number: int) -> None:
    async with asyncio.timeout(120):
        while not path.exists() or path.read_bytes().count(b"\n") < number:
            await asyncio.sleep(0.005)


async def test_killed_while_it_writes_it_leaves_each_aggregate_once(run: ScriptedRun, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for kill in range(KILLS):
        told = [aggregate(number, loss=[1.0]) for number in range(kill * PART + 1, (kill + 1) * PART + 1)]
        await say(run, *told)
        worker = await started(run, path)
        await until_lines(path, kill * PART + 1)  # after one batch, before the next
        worker.kill()
        assert await worker.wait() == -signal.SIGKILL

    await say(run, aggregate(KILLS * PART + 1, loss=[1.0]))  # what only the last one can write: it is up by then
    last = await started(run, path)
    await until_lines(path, KILLS * PART + 1)
    last.send_signal(signal.SIGTERM)

    assert await last.wait() == 0
    numbers = [json.loads(line)["sequence"] for line in path.read_text().splitlines()]
    assert numbers == list(range(1, KILLS * PART + 2))
