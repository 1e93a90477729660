"""A rank that is resumed as a process of its own, until it says what it came to, or is killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esper.leyline import contracts as pb
from tests.faults.processes import Running, wait_until
from tests.system.processes import PATIENCE_S, Start, processes
from tests.system.scripted import Script

Seen = dict[str, Any]


@dataclass(frozen=True)
class Rank:
    """A process that trains, and what it writes."""

    process: Running
    log: Path

    def said(self, stored: Callable[[], bool] = lambda: True) -> Seen:
        """What it saw; once Redis has what is waited for, it is killed."""
        try:
            self.until(lambda: bool(self._told()) and stored())
        finally:
            self.kill()
        seen: Seen = json.loads(self._told()[-1])
        return seen

    def ended(self) -> str:
        """Its last words; it is killed where it comes to its last step instead."""
        wait_until(lambda: self.process.poll() is not None or bool(self._told()), "it has said something", PATIENCE_S)
        self.kill()
        return self.log.read_text()

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for that; it does not end before."""
        wait_until(lambda: reached() or self.process.poll() is not None, "it is there, or has ended", PATIENCE_S)
        assert reached(), self.log.read_text()[-4000:]

    def kill(self) -> None:
        """The runtime beside it, which still says what it was told, ends by itself."""
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not processes(self.log.parent), "its processes are gone", PATIENCE_S)

    def _told(self) -> list[str]:
        whole, _, _ = self.log.read_text().rpartition("\n")
        return [line for line in whole.splitlines() if line.startswith("{")]


def start(ranks: Start, script: Script, folder: Path, num_orders: int, num_steps: int, how: str) -> Rank:
    log = folder.parent / f"{folder.name}-{how}.log"
    told = {"RESUMED": f"{folder}|{num_orders}|{num_steps}|{how}"}
    return Rank(ranks("tests.system.resumed", log, {**script.environment(), **told}), log)


def num_heartbeats(script: Script) -> int:
    return len(script.read("heartbeats"))


def host_rate() -> pb.AdaptationCommand:
    return pb.AdaptationCommand(
        version=1,
        command_id="rate",
        command_type=pb.CommandType.COMMAND_OPTIMIZER,
        priority=pb.MessagePriority.MESSAGE_PRIORITY_NORMAL,
        optimizer_adjustment=pb.OptimizerAdjustment(optimizer_id="host", hyperparameters={"lr": 0.003}),
    )
