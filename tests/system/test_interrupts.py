"""What ends a run early: Ctrl-C at any moment, and the death of any of its processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.cli.main import app
from tests.faults.processes import wait_until
from tests.system.processes import (
    ENDED_WITHIN_S,
    PATIENCE_S,
    Esper,
    ends_by_ctrl_c,
    logs_of,
    nothing_left,
    processes,
    runs_of,
    stop,
)

Start = Callable[..., Esper]

DRAINED_WITHIN_S = 60.0  # one tier after the other
TOLD_WITHIN_S = 60.0  # the death of a process: noticed at once, then three seconds of grace for the others


def demo(esper: Start, runtime: Path, workers: int = 1) -> Esper:
    """With as few as the test needs: each takes five seconds of processor time to come up."""
    return esper("demo", "--runs-dir", runtime / "runs", "--workers", str(workers))


def test_ctrl_c_while_workers_come_up(esper: Start, runtime: Path) -> None:
    command = demo(esper, runtime)
    command.says("waiting for the workers")
    wait_until(lambda: "trainer-0.log" in logs_of(runtime), "the trainer has a log", PATIENCE_S)

    assert ends_by_ctrl_c(command) != 0


def test_ctrl_c_in_the_middle_of_training(swift: Start, runtime: Path) -> None:
    command = demo(swift, runtime, workers=2)
    command.says("growing seeds")

    assert ends_by_ctrl_c(command) != 0


def test_an_impatient_second_ctrl_c_leaves_nothing_behind_either(swift: Start, runtime: Path) -> None:
    command = demo(swift, runtime)
    command.says("growing seeds")
    command.interrupt()

    assert ends_by_ctrl_c(command) != 0


def test_ctrl_c_while_a_detached_run_comes_up_ends_that_too(esper: Start, runtime: Path) -> None:
    command = esper("up", "--detach", "--runs-dir", runtime / "runs")
    wait_until(lambda: bool(runs_of(runtime)), "a run is listed", PATIENCE_S)

    assert ends_by_ctrl_c(command, DRAINED_WITHIN_S) != 0


def test_killed_outright_it_takes_its_processes_along(swift: Start, runtime: Path) -> None:
    command = demo(swift, runtime)
    command.says("growing seeds")

    stop(command.pid_of("esper.cli.main"))

    wait_until(lambda: not processes(runtime), "its processes are gone", ENDED_WITHIN_S)


@pytest.mark.parametrize(
    ("name", "words", "moment"),
    [
        ("trainer-1", ["esper.workers.trainer", "ESPER_NAME=worker-1"], "growing seeds"),
        ("coordinator", ["esper.workers.coordinator"], "waiting for the workers"),
        ("redis", ["redis-server"], "growing seeds"),
    ],
)
def test_the_death_of_a_process_is_told_with_its_last_words(
    swift: Start, runtime: Path, name: str, words: list[str], moment: str
) -> None:
    command = demo(swift, runtime, workers=2 if name == "trainer-1" else 1)
    command.says(moment)
    elsewhere = "Redis has its own elsewhere"
    wait_until(lambda: bool(logs_of(runtime).get(f"{name}.log", elsewhere)), f"{name} has said something", PATIENCE_S)
    victim = command.pid_of(*words)
    began = time.monotonic()

    stop(victim)
    status = command.ended(TOLD_WITHIN_S)

    assert status == 1
    assert time.monotonic() - began < TOLD_WITHIN_S
    assert f"esper: {name} ended with signal SIGKILL" in command.text
    told = command.text.partition(f"esper: {name} ended")[2].splitlines()
    assert len(told) > 1 and all(line.startswith("  ") for line in told[1:])
    assert "Traceback" not in command.text
    wait_until(lambda: nothing_left(runtime), "nothing is left of it", ENDED_WITHIN_S)


def test_a_run_is_steered_from_other_terminals_by_its_name_also_past_the_death_of_a_runtime(
    swift: Start, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))  # this process is the other terminal
    up = swift("up", "--name", "elsewhere", "--runs-dir", runtime / "runs")
    up.says("trainer is ready")

    seed = ["germinate", "s0", "--site", "head", "--blueprint", "lora", "--param", "rank=4"]
    wait_until(lambda: "2 workers heard of" in typed("status", "--run", "elsewhere"), "both are heard of", PATIENCE_S)
    status = typed("status", "--run", "elsewhere")
    germinated = typed("publish", *seed, "--run", "elsewhere")
    [aggregate] = typed("tail", "--run", "elsewhere", "--tier", "global", "--count", "1", "--json").splitlines()
    stop(up.pid_of("esper.workers.runtime", "ESPER_NAME=worker-0"))
    wait_until(lambda: "runtime.lost" in logs_of(runtime)["trainer-0.log"], "its runtime is lost", PATIENCE_S)
    paused = typed("publish", "pause", "--run", "elsewhere")
    resumed = typed("publish", "resume", "--run", "elsewhere")

    assert "worker-0" in status and "worker-1" in status
    assert json.loads(aggregate)
    for answer in (germinated, paused, resumed):
        assert answer.count("applied") == 2, answer
    up.says("s0=GERMINATED")
    assert ends_by_ctrl_c(up, DRAINED_WITHIN_S) == 0
    assert up.said[-1] == "coordinator is stopped"


def typed(*words: str) -> str:
    """What a command says that ends well; one of another process would import, for a second, what this one has."""
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result.stdout
