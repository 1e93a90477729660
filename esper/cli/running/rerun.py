"""Trains the ranks of a run once more, each in a process of its own, none of which outlives the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import typer

from esper.cli.running.ports import free_port
from esper.errors import EsperError
from esper.leyline import contracts as pb
from esper.runtime.beside.launcher import BY_TORCHRUN
from esper.runtime.crew.spawn import LAUNCH, signal_group
from esper.view.wording import counted

LAST_LINES = 5
TELL_EVERY_S = 30.0
OF_LIVE_RUNS = ("ESPER_RUN", "ESPER_REDIS_URL", "ESPER_KEYRING", BY_TORCHRUN)
"""Settings of whoever starts the replay that its processes are not told: they know of no live run."""


class ReplayFailedError(EsperError):
    """A rank did not come to its end."""


class ReplayProgress:
    """Tells whoever waits for a replay that it has begun, and now and then how far it is. Knows no clock."""

    def __init__(self, folder: Path, made: Sequence[pb.ReplayPlan], now_s: float, tell: Callable[[str], None]) -> None:
        self._folder, self._made = folder, made
        self._tell, self._began_s, self._told_s = tell, now_s, now_s
        tell(f"replaying {made[0].last_step} steps on {counted(len(made), 'rank')}")

    def look(self, now_s: float) -> None:
        """Say a word if the last one is long ago."""
        if now_s - self._told_s >= TELL_EVERY_S:
            self._told_s = now_s
            step = min(_step_of(self._folder / f"step-{plan.rank}") for plan in self._made)
            self._tell(f"still replaying after {now_s - self._began_s:.0f} s: step {step} of {self._made[0].last_step}")


def train(folder: Path, made: Sequence[pb.ReplayPlan], arguments: Sequence[str], deadline: float) -> None:
    """Every rank in a process of its own, to its end; the first that fails ends the others."""
    progress = ReplayProgress(folder, made, time.monotonic(), say_aside)
    port = free_port()
    logs = [folder / f"rank-{plan.rank}.log" for plan in made]
    ranks = [_start(folder, plan, arguments, port, path) for plan, path in zip(made, logs, strict=True)]
    try:
        while running := [rank for rank in ranks if rank.poll() is None]:
            progress.look(time.monotonic())
            if time.monotonic() > deadline:
                raise ReplayFailedError("the replay took longer than --timeout allows")
            failed = [number for number, rank in enumerate(ranks) if rank.poll() not in (None, 0)]
            if failed:
                break
            running[0].wait_briefly()
        for number, rank in enumerate(ranks):
            if rank.poll() not in (None, 0):
                words = logs[number].read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
                raise ReplayFailedError(f"{made[number].worker} ended with status {rank.poll()}: {' | '.join(words)}")
    finally:
        for rank in ranks:
            rank.kill()


def say_aside(line: str) -> None:
    """To whoever looks at the terminal; nothing of a replay is lost where nobody can."""
    with suppress(OSError):
        typer.echo(line, err=True)


def _step_of(path: Path) -> int:
    """As the rank has said it, once a second or so; 0 for one that has not joined yet."""
    return int(path.read_text()) if path.is_file() else 0


class _Rank:
    """One process of a replay, in a session of its own. The kernel ends it once this process is gone, however."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str], path: Path) -> None:
        with open(path, "wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", LAUNCH, str(os.getpid()), "", sys.executable, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def poll(self) -> int | None:
        return self._process.poll()

    def wait_briefly(self) -> None:
        """Until it ends, but no longer than the others may be left unseen."""
        try:
            self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            return

    def kill(self) -> None:
        """With whatever it has started; one that has ended is let be, as another group may bear its number by now."""
        if self._process.poll() is None:
            signal_group(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _start(folder: Path, plan: pb.ReplayPlan, arguments: Sequence[str], port: int, path: Path) -> _Rank:
    environment = {name: value for name, value in os.environ.items() if name not in OF_LIVE_RUNS}
    environment |= {
        "ESPER_REPLAY": str(folder),
        "ESPER_STOP_FILE": str(folder / "stop"),  # never there: a replay ends with the log
        "ESPER_NAME": plan.worker,
        "OMP_NUM_THREADS": str(plan.num_threads),
        "PYTHONUNBUFFERED": "1",
    }
    if plan.world_size > 1:
        environment |= {
            "RANK": str(plan.rank),
            "LOCAL_RANK": str(plan.rank),
            "WORLD_SIZE": str(plan.world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
        }
    return _Rank(arguments, environment, path)
