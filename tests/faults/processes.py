"""Child processes that are killed, paused and told to stop, each of which is checked to have happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

ROOT = Path(__file__).resolve().parents[2]
SOON_S = 60.0  # turns a hang into a failure, also on a machine that stands still at times
REST_S = 0.005  # between two looks; without it they take a core from who is waited for

# PR_SET_PDEATHSIG is 1; it survives execv. SIGKILL, because a child that is paused would not hear anything else.
LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
signal.pthread_sigmask(signal.SIG_SETMASK, [])
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Running(Protocol):
    """What is asked of a process that was started; subprocess.Popen is one."""

    pid: int

    @property
    def args(self) -> Any: ...
    @property
    def returncode(self) -> int | Any: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Child:
    """One command, leader of a process group of its own, that lives no longer than the thread which starts it."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.process: Running | None = None

    def command(self) -> Sequence[str]:
        """Argument vector, a full path first."""
        raise NotImplementedError

    @property
    def environment(self) -> Mapping[str, str]:
        return os.environ

    def start(self) -> Self:
        assert not self.alive, f"{self.log.stem} runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.process = self._launched()
        return self

    def _launched(self) -> Running:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", LAUNCH, str(os.getpid()), *self.command()],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.log.stem} was never started"
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL to the whole group; it died of that and of nothing earlier."""
        self.send(signal.SIGKILL)
        assert self._ended(SOON_S) == -signal.SIGKILL, f"{self.log.stem} died by itself: {self.last_words()}"

    def pause(self) -> None:
        """SIGSTOP; on return it stands still."""
        self.send(signal.SIGSTOP)
        wait_until(lambda: state_of(self.pid) == "T", f"{self.log.stem} is paused")

    def resume(self) -> None:
        """SIGCONT; it did stand still until now."""
        assert state_of(self.pid) == "T", f"{self.log.stem} was not paused any more"
        self.send(signal.SIGCONT)
        wait_until(lambda: state_of(self.pid) != "T", f"{self.log.stem} goes on")

    def terminate(self, grace_s: float) -> float:
        """SIGTERM; how long it took to end by that, in order or by the signal's default. Fails past the grace."""
        began = time.monotonic()
        self.send(signal.SIGTERM)
        code = self._ended(grace_s)
        assert code in (0, -signal.SIGTERM), f"{self.log.stem} ended with {code}: {self.last_words()}"
        return time.monotonic() - began

    def send(self, number: int) -> None:
        """A signal to the group; the child is there to get it."""
        assert self.alive, f"{self.log.stem} is gone already: {self.last_words()}"
        os.killpg(self.pid, number)

    def discard(self) -> None:
        """End it in whatever state it is."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):  # a nursery has buried it, and is about to tell
                os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-5:]) or "it said nothing"

    def _ended(self, within_s: float) -> int:
        assert self.process is not None
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.log.stem} has not ended in {within_s} s: {self.last_words()}") from None

    def __enter__(self) -> Self:
        return self.start() if self.process is None else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()


class Process(Child):
    """`python -m module` with its arguments as one JSON text; what it says goes to the log."""

    def __init__(
        self, module: str, arguments: Mapping[str, Any], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(log)
        self.module, self.arguments = module, dict(arguments)
        self._environment = {**os.environ, **(environment or {})}

    def command(self) -> Sequence[str]:
        return [sys.executable, "-P", "-m", self.module, json.dumps(self.arguments)]

    @property
    def environment(self) -> Mapping[str, str]:
        return {**self._environment, "PYTHONPATH": str(ROOT)}


def state_of(pid: int) -> str:
    """One letter: R runs, S sleeps, T is stopped, Z has ended, buried or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def has_ended(pid: int) -> bool:
    return state_of(pid) == "Z"


class TooLateError(AssertionError):
    """Something that was to come did not, in time."""


def sleep_until(at_s: float) -> None:
    """By `time.monotonic()`."""
    time.sleep(max(0.0, at_s - time.monotonic()))


def wait_until(holds: Callable[[], bool], what: str, timeout_s: float = SOON_S) -> float:
    """Look now and then until it holds; how long that took. Fails where it does not in time."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began >= timeout_s:
            raise TooLateError(f"not within {timeout_s} s: {what}")
        time.sleep(REST_S)
    return time.monotonic() - began
