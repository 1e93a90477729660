"""The processes of a replay know of no live run, and none is left behind, whatever ends it before its time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.cli.main import app
from esper.runtime.crew.procs import look
from tests.faults.nursery import Born
from tests.faults.processes import wait_until
from tests.forked_kit import Forge, module
from tests.log_kit import toy

SLEEPER = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
name = os.environ["ESPER_NAME"]
with open(f"{name}.aside", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(f"{name}.aside", f"{name}.pids")
time.sleep(600)
"""
TELLER = """
import os, sys
sys.exit("told of " + " ".join(sorted({"ESPER_RUN", "ESPER_KEYRING", "TORCHELASTIC_RUN_ID", "OWN"} & {*os.environ})))
"""
STARTED_S, ENDED_S = 100.0, 60.0


@pytest.fixture
def replay(forge: Forge, tmp_path: Path) -> Iterator[Born]:
    """Of a run of two ranks; what is started instead of its script sleeps, and has started another."""
    toy().save(tmp_path / "run.jsonl")
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    (tmp_path / "temporary").mkdir()
    program = module("esper.cli.main", "replay", "run.jsonl", "--script", "sleeper.py")
    with forge.talking(program, {"TMPDIR": str(tmp_path / "temporary")}, tmp_path) as (process, _, _):
        yield process


def started(folder: Path) -> list[list[int]]:
    """Of each rank its own id, and that of what it has started."""
    wait_until(lambda: len(list(folder.glob("*.pids"))) == 2, "both ranks are started", STARTED_S)
    return [[int(word) for word in path.read_text().split()] for path in folder.glob("*.pids")]


def lives(pid: int) -> bool:
    return (found := look(pid)) is not None and not found.is_zombie


@pytest.fixture
def pids(replay: Born, tmp_path: Path) -> Iterator[list[list[int]]]:
    """Of the ranks, once all have come up. None of them outlives the test."""
    yield (found := started(tmp_path))
    for pid in filter(lives, chain.from_iterable(found)):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_replay_that_is_told_to_end_ends_all_that_it_has_begun(
    replay: Born, pids: list[list[int]], number: signal.Signals, tmp_path: Path
) -> None:
    replay.send_signal(number)
    status = replay.wait(ENDED_S)

    wait_until(lambda: not any(map(lives, chain.from_iterable(pids))), "all have ended", ENDED_S)
    assert (status, list((tmp_path / "temporary").iterdir())) == (130, [])


def test_the_ranks_of_a_replay_that_is_killed_end_with_it(replay: Born, pids: list[list[int]]) -> None:
    replay.kill()
    replay.wait(ENDED_S)

    wait_until(lambda: not any(lives(rank) for rank, _ in pids), "both ranks have ended", ENDED_S)


def test_the_ranks_of_a_replay_are_told_of_no_live_run_and_no_torchrun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = toy().save(tmp_path / "run.jsonl")
    (tmp_path / "teller.py").write_text(TELLER)
    for name in ("ESPER_RUN", "ESPER_KEYRING", "TORCHELASTIC_RUN_ID", "OWN"):
        monkeypatch.setenv(name, "7")

    said = CliRunner().invoke(app, ["replay", str(log), "--script", str(tmp_path / "teller.py")])

    assert said.exit_code == 2
    assert said.output.endswith("ended with status 1: told of OWN\n")
