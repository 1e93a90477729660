"""A rank that hangs ends its process group; one that is slow or busy does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.runtime.beside.alarm import EVICTED
from tests.system.processes import PATIENCE_S

SILENCE_S, AWAY_S = 6.0, 21.0
"""A compilation of 20 s, which is as long as one that says so may be silent: its runtime speaks for it meanwhile.

Six, as a machine that stands still for three seconds is no hang.
"""


class Group:
    """A coordinator and two ranks."""

    def __init__(self, redis_url: str, run_id: str, directory: Path) -> None:
        self.coordinator_log = directory / "coordinator.log"
        master = MasterKeyring.new(time.time_ns())
        self._environment = {**os.environ, "ESPER_RUN": run_id, "ESPER_REDIS_URL": redis_url}
        for role in (Role.COORDINATOR, Role.WORKER):
            master.derive(run_id, [role]).save(directory / f"{role}.json")
        self._keyrings = directory
        leads = {"ESPER_NAME": "coordinator", "ESPER_SILENCE_S": str(SILENCE_S)}
        with self.coordinator_log.open("wb") as log:
            self.coordinator = self._start("esper.workers.coordinator", Role.COORDINATOR, leads, stderr=log)
        self.ranks = [
            self._start("tests.system.hanging", Role.WORKER, {"ESPER_NAME": f"worker-{at}"}, str(at), str(AWAY_S))
            for at in (0, 1)
        ]

    def says(self, at: int) -> str:
        stdout = self.ranks[at].stdout
        assert stdout is not None
        return stdout.readline().decode().strip()

    def go_on(self) -> None:
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.write(b"x")
            rank.stdin.flush()

    def close(self) -> None:
        for process in (*self.ranks, self.coordinator):
            process.kill()
            process.communicate()

    def _start(
        self, module: str, role: Role, told: dict[str, str], *arguments: str, stderr: int | IO[bytes] = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env={**self._environment, "ESPER_KEYRING": str(self._keyrings / f"{role}.json"), **told},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )


@pytest.fixture
def group(redis_url: str, run_id: str, tmp_path: Path) -> Iterator[Group]:
    started = Group(redis_url, run_id, tmp_path)
    yield started
    started.close()


def test_slow_and_busy_ranks_live_and_one_that_stands_still_ends_its_group(group: Group) -> None:
    assert [group.says(at) for at in (0, 1)] == ["begins"] * 2
    group.go_on()
    assert [group.says(at) for at in (0, 1)] == ["is back"] * 2  # both were away for longer than is waited
    assert "round.aborted" not in group.coordinator_log.read_text()

    stuck, stopped = (rank.wait(PATIENCE_S) for rank in group.ranks)

    assert (stuck, stopped) == (EVICTED, -signal.SIGKILL)
    assert group.ranks[0].stderr is not None
    why = "worker-1 said nothing for 6 s: the process group ends, to begin anew from the newest common checkpoint"
    assert f"round 1: {why}" in group.ranks[0].stderr.read().decode().splitlines()
    assert why in group.coordinator_log.read_text()
