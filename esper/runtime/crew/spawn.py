"""One child: started in a process group of its own, within its limits, and ended with all that it has started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from esper.errors import EsperError
from esper.runtime.crew.procs import is_left

KILLED_S = 1.0  # until the kernel has buried what was killed
LOOK_S = 0.02

# PR_SET_PDEATHSIG is 1: SIGTERM once the supervisor is gone, however it ended. It survives execv; a preexec_fn would
# run Python between fork and exec, which threads make unsafe. The supervisor may have died before the call.
LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
for word in sys.argv[2].split():
    name, _, value = word.partition("=")
    if name == "nice":
        os.nice(int(value))
    else:
        import resource
        resource.setrlimit(int(name), (int(value), int(value)))
try:
    os.execvp(sys.argv[3], sys.argv[3:])
except OSError as error:
    sys.exit(f"{sys.argv[3]} cannot be started: {error.strerror}")
"""


@dataclass(frozen=True, slots=True)
class Program:
    """What one process is started with. `limits`: words such as nice=5 or 7=1024, the kernel's number of a limit.

    `without`: variables of whoever starts it that are none of its business.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: str = ""
    without: Collection[str] = ()


class NotStartedError(EsperError):
    """The system makes no further process, or no log for it."""

    def __init__(self, name: str, log: Path, why: str) -> None:
        self.name, self.log, self.why = name, log, why
        super().__init__(f"{name} can't be started with its log at {log}: {why}")


async def spawn(program: Program, log: Path, **more: str) -> asyncio.subprocess.Process:
    """Start it, in this environment and `more`; what it says goes to the end of `log`. NotStartedError: it is not."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if name not in program.without}
        with log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", LAUNCH, str(os.getpid()), program.limits, *program.command),
                env={**inherited, **program.environment, **more},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a Ctrl-C in the terminal is for the supervisor alone to pass on
            )
    except OSError as error:
        raise NotStartedError(program.name, log, error.strerror or str(error)) from error


def signal_group(pid: int, number: signal.Signals) -> None:
    """To whoever is left of the process group that this process leads, or led."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def is_gone(process: asyncio.subprocess.Process) -> bool:
    """Whether it has ended, and all of its group with it."""
    return process.returncode is not None and not is_left(process.pid)


async def gone(processes: Sequence[asyncio.subprocess.Process], timeout_s: float) -> bool:
    """Wait until all have ended with their groups; whether they have, in that time."""
    deadline = time.monotonic() + timeout_s
    while not all(map(is_gone, processes)):
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(LOOK_S)
    return True


async def end(processes: Sequence[asyncio.subprocess.Process], timeout_s: float) -> bool:
    """SIGTERM to each that runs, SIGKILL to what is left of their groups after the time; whether none was left.

    The groups are not sent the SIGTERM: what a trainer has started ends by itself once it has said what it still has.
    """
    for process in processes:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
    in_order = await gone(processes, timeout_s)
    if not in_order:
        for process in processes:
            signal_group(process.pid, signal.SIGKILL)
        await gone(processes, KILLED_S)
    return in_order


def said(exit_code: int) -> str:
    """How a process has ended, for people."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    named = -exit_code in list(signal.Signals)  # real-time ones between the first and the last have no name
    return f"signal {signal.Signals(-exit_code).name if named else -exit_code}"
