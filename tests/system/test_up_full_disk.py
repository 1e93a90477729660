"""A run whose disk is full at its end: its log waits for room, and who ends it without its log is told so."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from esper.bus import connect, names
from esper.bus.publisher import Publisher
from esper.bus.runs import SOCKET
from esper.runtime.history import logbook
from tests.faults.processes import wait_until
from tests.system.processes import PATIENCE_S, Esper, nothing_left, runs_of

Start = Callable[..., Esper]
BETWEEN_NS = int(logbook.ROOM_S * 0.5e9)  # an attempt takes less, and until the next one it is twice as long
FILE = """
name = "full"
runs_dir = "{runs}"
coordinator.count = 0
regional.count = 0
global.count = 0
trainer.count = 0

[process.sleeper]
command = ["sleep", "600"]
"""


@pytest.fixture
def file(runtime: Path) -> Path:
    path = runtime / "run.toml"
    path.write_text(FILE.format(runs=runtime / "runs"))
    return path


def said_by(runtime: Path) -> str:
    """The one run, on whose log there is something from now on."""
    [run_id] = runs_of(runtime)

    async def say() -> None:
        async with connect.writer(f"unix://{runtime}/esper/{run_id}/{SOCKET}") as redis:
            await Publisher(redis).add(names.key(run_id, "commands"), b"told")

    asyncio.run(say())
    return run_id


def room(pid: int, most: int) -> None:
    """For the files of this process: each write that finds none fails as on a full disk."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def test_a_run_that_a_second_signal_ends_without_its_log_ends_with_status_1(
    esper: Start, runtime: Path, file: Path
) -> None:
    keeper = esper("up", "-f", file)
    keeper.says("sleeper is ready")
    run_id = said_by(runtime)
    room(keeper.pid_of("esper.cli.main up"), 0)

    keeper.interrupt()
    keeper.says("log.waits_for_room")
    asked = esper("ps", "full")
    asked.says(f"{run_id} has ended its processes, and ends once its log is kept: on a full disk, once there is room")
    keeper.interrupt()

    assert keeper.ended() == 1
    assert "log.not_kept" in keeper.said[-1]


def test_a_detached_run_whose_own_log_takes_no_line_keeps_that_of_the_run_once_there_is_room(
    esper: Start, runtime: Path, file: Path
) -> None:
    started = esper("up", "-f", file, "--detach")
    assert started.ended() == 0
    keeper, log = started.pid_of("--told-fd"), runtime / "runs" / said_by(runtime) / "log"
    room(keeper, 0)

    esper("down", "full")
    wait_until(log.exists, "the first attempt is under way", PATIENCE_S)
    first_ns = log.stat().st_mtime_ns
    wait_until(
        lambda: log.stat().st_mtime_ns - first_ns > BETWEEN_NS or nothing_left(runtime), "another one is", PATIENCE_S
    )
    room(keeper, resource.RLIM_INFINITY)
    wait_until(lambda: nothing_left(runtime), "nothing is left of it", PATIENCE_S)

    assert (log / "run.jsonl").exists()
