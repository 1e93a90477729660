"""Gives a process a part of a processor: by the kernel's deadline schedule, or by others that run beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.faults.processes import Child

PERIOD_NS = 10_000_000


@contextmanager
def limited(pid: int, percent: int, logs: Path) -> Iterator[str]:
    """It has no more of a processor than this within the block, which is told by what means.

    The deadline schedule takes CAP_SYS_NICE, and gives it as much also where others want all. Without that it has no
    more than it is left.
    """
    runtime_ns = PERIOD_NS * percent // 100
    times = f"--sched-runtime={runtime_ns}", f"--sched-deadline={PERIOD_NS}", f"--sched-period={PERIOD_NS}"
    if is_scheduled(pid, "--deadline", *times):
        try:
            yield "deadline_schedule"
        finally:
            is_scheduled(pid, "--other")
    else:
        with crowded(pid, percent, logs):
            yield "spinners"


def is_scheduled(pid: int, *how: str) -> bool:
    """Have all threads of a process run by another schedule; whether they do."""
    told = ["chrt", "--all-tasks", *how, "--pid", "0", str(pid)]
    try:
        return subprocess.run(told, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def crowded(pid: int, percent: int, logs: Path) -> Iterator[None]:
    """On one processor with as many that never sleep as leave it its part."""
    before = os.sched_getaffinity(pid)
    one = {max(before)}
    with ExitStack() as stack:
        stack.callback(os.sched_setaffinity, pid, before)
        os.sched_setaffinity(pid, one)
        for number in range(round(100 / percent) - 1):
            spinner = stack.enter_context(Spinner(logs / f"spinner-{number}.log"))
            os.sched_setaffinity(spinner.pid, one)
        yield


class Spinner(Child):
    """Has always something to do."""

    def command(self) -> Sequence[str]:
        return [sys.executable, "-I", "-S", "-c", "while True: pass"]
