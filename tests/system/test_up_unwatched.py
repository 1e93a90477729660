"""A run that `esper up` keeps going, of which nobody watches the terminal, or waits for it any more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.processes import wait_until
from tests.system.processes import PATIENCE_S, Esper, logs_of, nothing_left, stop

Start = Callable[..., Esper]
FILE = """
name = "unwatched"
runs_dir = "{runs}"
ready_s = {ready_s}
coordinator.count = 0
regional.count = 0
global.count = 0
trainer = {{count = {count}, command = ["sleep", "600"]}}

[process.sleeper]
command = ["sleep", "600"]
"""


def run_file(runtime: Path, num_trainers: int, ready_s: float) -> Path:
    path = runtime / "run.toml"
    path.write_text(FILE.format(runs=runtime / "runs", count=num_trainers, ready_s=ready_s))
    return path


def test_a_run_whose_output_nobody_reads_any_more_goes_on_until_it_is_told_to_end(esper: Start, runtime: Path) -> None:
    keeper = esper("up", "-f", run_file(runtime, 0, 60.0))
    keeper.says("sleeper is ready")
    keeper.hang_up()

    restarted = esper("restart", "sleeper", "unwatched").ended()  # of which it says a line or more
    told = esper("down", "unwatched").ended()

    assert (restarted, told, keeper.ended()) == (0, 0, 0)


def test_a_detached_run_that_is_slow_says_of_whom_and_ends_once_nobody_waits_for_it(
    esper: Start, runtime: Path
) -> None:
    waiting = esper("up", "-f", run_file(runtime, 1, 0.01), "--detach")
    waiting.says("trainer-0 not ready after 0.01 s; see ")
    assert waiting.said[0].startswith("esper: run unwatched-") and " comes up, and is waited for" in waiting.said[0]
    assert "trainer-0.log" in logs_of(runtime)

    stop(waiting.pid_of("esper.cli.main", "--detach"))

    wait_until(lambda: nothing_left(runtime), "nothing is left of it", PATIENCE_S)


@pytest.mark.parametrize("redirection", ["2>/dev/full", ">&-"])
def test_a_run_that_can_say_nothing_is_kept_going_beside_another_of_its_name(
    esper: Start, runtime: Path, redirection: str
) -> None:
    path = run_file(runtime, 0, 60.0)
    esper("up", "-f", path).says("sleeper is ready")
    words = ["sh", "-c", f'exec "$0" -P -m esper.cli.main up -f "$1" {redirection}', sys.executable, str(path)]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}

    with subprocess.Popen(words, env=env, cwd=runtime, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as second:
        wait_until(
            lambda: second.poll() is not None or is_ready_in_each_of(runtime, 2),
            "both are ready, or one is refused",
            PATIENCE_S,
        )
        told = esper("down", "unwatched").ended() if second.poll() is None else -1

    assert (told, second.returncode) == (0, 0)


def is_ready_in_each_of(runtime: Path, num_runs: int) -> bool:
    logs = [path.read_text() for path in runtime.glob("runs/*/logs/up.log")]
    return sum("process.ready" in log for log in logs) == num_runs
