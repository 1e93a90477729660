"""An `esper` command as a process of its own, what it says, and every process that it has started."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from tests.faults.processes import Running, wait_until


class Start(Protocol):
    """Runs a module as a process, by what it is told in its environment; what it says goes to the end of a file."""

    def __call__(self, module: str, log: Path, environment: Mapping[str, str], /, *words: str) -> Running: ...


PATIENCE_S = 200.0  # only a failure waits for it; on a machine at ten times its load a replay took 90 s
ENDED_WITHIN_S = 60.0  # patience too: a busy machine is no failure


class Esper:
    """One command, leader of a process group as in a terminal; its runs are listed below `runtime`, a private place.

    `runtime` is in the environment of whatever the command starts, so that nothing it leaves behind escapes a look.
    `told` is more of that environment.
    """

    def __init__(
        self, runtime: Path, *arguments: str | Path, cwd: Path | None = None, told: Mapping[str, str] | None = None
    ) -> None:
        self.runtime = runtime
        self.said: list[str] = []
        self._rest = b""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "esper.cli.main", *map(str, arguments)],
            cwd=cwd or runtime,
            env={**os.environ, "XDG_RUNTIME_DIR": str(runtime), "PYTHONUNBUFFERED": "1", **(told or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # A suite started in the background is told to ignore Ctrl-C, and what it starts would inherit that.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )

    @property
    def text(self) -> str:
        return "\n".join(self.said)

    def says(self, *words: str, timeout_s: float = PATIENCE_S) -> str:
        """Read on until a line holds one of these; the line."""
        deadline = time.monotonic() + timeout_s
        while (line := self._line(deadline)) is not None:
            if any(word in line for word in words):
                return line
        raise AssertionError(f"it never said {' or '.join(words)}:\n{self.text}")

    def ended(self, timeout_s: float = PATIENCE_S) -> int:
        """Read until it ends; its exit status."""
        deadline = time.monotonic() + timeout_s
        while self._line(deadline) is not None:
            pass
        return self._process.wait(max(0.1, deadline - time.monotonic()))

    def hang_up(self) -> None:
        """Read no further: what it says from now on meets a closed pipe."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def interrupt(self) -> None:
        """What Ctrl-C does in a terminal."""
        os.killpg(self._process.pid, signal.SIGINT)

    def kill(self) -> None:
        """End it and all that it started, whatever state they are in."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pid in processes(self.runtime):
            stop(pid)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def pid_of(self, *words: str) -> int:
        """The one process, among those it has started, in whose command line or environment all of these are."""
        found: list[int] = []

        def is_one() -> bool:  # a child, until it runs its own command, has that of its parent
            found[:] = [pid for pid, told in processes(self.runtime).items() if all(word in told for word in words)]
            return len(found) == 1

        wait_until(is_one, f"one process has {words}", PATIENCE_S)
        return found[0]

    def _line(self, deadline: float) -> str | None:
        """The next line of output; None once there is no more."""
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"too late; it has said:\n{self.text}")
            if not (data := os.read(descriptor, 65_536)):
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        self.said.append(line.decode())
        return self.said[-1]


def processes(place: Path) -> dict[int, str]:
    """Command line and environment of every process that knows of this place; zombies know of nothing."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and str(place) in (told := _told(entry)):
            found[int(entry.name)] = told
    return found


def _told(process: Path) -> str:
    try:
        told = (process / "cmdline").read_bytes() + b"\0" + (process / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
    return told.replace(b"\0", b" ").decode(errors="replace")


def started(module: str, log: Path, environment: Mapping[str, str], *words: str) -> Running:
    """As whoever has no nursery starts it."""
    with log.open("ab") as said:
        command = [sys.executable, "-m", module, *words]
        return subprocess.Popen(command, env={**os.environ, **environment}, stdout=said, stderr=said)


def buried(*children: Running, timeout_s: float = ENDED_WITHIN_S) -> None:
    """Wait until these have ended, as they were asked to; where one has not by then it is killed, and that is wrong."""
    deadline, late = time.monotonic() + timeout_s, []
    for process in children:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            late.append(process.args)
    assert not late, f"not ended within {timeout_s:g} s, and killed: {late}"


def ended_well(children: Sequence[Running], logs: Sequence[Path], timeout_s: float = PATIENCE_S) -> None:
    """Wait until all of these have, each with its log; a test that ends early takes them along."""
    try:
        codes = [process.wait(timeout_s) for process in children]
        assert codes == [0] * len(children), [log.read_text(errors="replace")[-4000:] for log in logs]
    finally:
        for process in children:
            process.kill()
            process.wait()


def stop(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process, which may be gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def runs_of(runtime: Path) -> list[str]:
    """Directories of runs below this place, whole or in the making."""
    home = runtime / "esper"
    return sorted(path.name for path in home.iterdir()) if home.is_dir() else []


def logs_of(runtime: Path) -> dict[str, str]:
    """Every log that a command left below this place, by its file's name."""
    return {path.name: path.read_text(errors="replace") for path in runtime.glob("runs/*/logs/*.log")}


def nothing_left(runtime: Path) -> bool:
    """Whether all of its processes have ended, and no run is listed."""
    return not processes(runtime) and not runs_of(runtime)


def ends_by_ctrl_c(command: Esper, within_s: float = ENDED_WITHIN_S) -> int:
    """Press it; the exit status of a command that took what it had started with it, in time and without a word."""
    began = time.monotonic()
    command.interrupt()
    status = command.ended(within_s)
    wait_until(lambda: nothing_left(command.runtime), "nothing is left of it", within_s)

    assert time.monotonic() - began < within_s
    assert "Traceback" not in command.text
    return status
