"""Heartbeats for a trainer that is away from its boundary: the process beside it knows that it lives."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from esper.leyline import contracts as pb

BEAT_S = 0.5
STEP_TIMEOUT_S = 600.0
STOPPED = "TtZX"
"""States of a process, as proc(5) has them, in which it does nothing: stopped, traced, ended."""


@dataclass
class HeartbeatRepeater:
    """Says a trainer's newest heartbeat again while it says nothing, for as long as its process is not stopped.

    A step, a compilation or a collective of any length is no hang; one of which nothing was heard for
    `step_timeout_s`, is.
    """

    step_timeout_s: float = STEP_TIMEOUT_S
    pid: int = field(default_factory=os.getppid)
    clock: Callable[[], float] = time.monotonic
    _last: pb.Heartbeat | None = None
    _heard_s: float = 0.0

    def heard(self, heartbeat: pb.Heartbeat) -> None:
        """The trainer has spoken for itself."""
        self._last, self._heard_s = heartbeat, self.clock()

    @property
    def last(self) -> pb.Heartbeat | None:
        """The newest that the trainer said itself; None: none yet."""
        return self._last

    @property
    def age_s(self) -> float:
        """Since the trainer has spoken for itself."""
        return self.clock() - self._heard_s

    def again(self) -> pb.Heartbeat | None:
        """What to say in its place by now, which asks for no round; None: nothing, or it has just spoken."""
        silent_s = self.clock() - self._heard_s
        if self._last is None or not BEAT_S <= silent_s < self.step_timeout_s or is_stopped(self.pid):
            return None
        return repeated(self._last)


def repeated(heartbeat: pb.Heartbeat) -> pb.Heartbeat:
    """The same, said once more: it asks for no round."""
    beat = pb.Heartbeat()
    beat.CopyFrom(heartbeat)
    beat.time_ns, beat.barrier_due, beat.repeated = time.time_ns(), False, True
    beat.ClearField("pruning")
    return beat


def is_stopped(pid: int) -> bool:
    """Whether a process stands still, as by SIGSTOP, or has ended. False where there is no /proc to look at."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return Path("/proc/self/stat").exists()
    return stat.rpartition(")")[2].split()[0] in STOPPED
