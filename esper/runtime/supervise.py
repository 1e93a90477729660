"""Starts the processes of a run as children, tells at once when one of them dies, and leaves none behind."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from esper.errors import EsperError
from esper.runtime.spawn import KILLED_S, Program, said, signal_group, spawn

T = TypeVar("T")

GRACE_S = 3.0  # from SIGTERM to SIGKILL
LAST_LINES = 12


class ProcessDiedError(EsperError):
    """A process of the run ended though it should have gone on, or ended in failure."""

    def __init__(self, name: str, exit_code: int, log: Path, last_lines: Sequence[str]) -> None:
        self.name, self.exit_code, self.log, self.last_lines = name, exit_code, log, list(last_lines)
        words = "\n  ".join(last_lines) or "it said nothing"
        super().__init__(f"{name} ended with {said(exit_code)}; the end of {log}:\n  {words}")


@dataclass(slots=True)
class Child:
    """One process, leader of a session and a process group of its own."""

    name: str
    process: asyncio.subprocess.Process
    log: Path
    may_end: bool

    @property
    def died(self) -> bool:
        """Ended in failure, or at all where it should go on."""
        code = self.process.returncode
        return code is not None and (code != 0 or not self.may_end)

    def error(self) -> ProcessDiedError:
        code = self.process.returncode
        return ProcessDiedError(self.name, -1 if code is None else code, self.log, last_lines(self.log))


class Supervisor:
    """Children by name, each with a log of its own. Knows nothing of what they do."""

    def __init__(self, log_directory: Path, grace_s: float = GRACE_S) -> None:
        self._log_directory, self._grace_s = log_directory, grace_s
        self._children: dict[str, Child] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._first_dead: Child | None = None  # the others often die of it
        self._died = asyncio.Event()

    async def start(
        self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None, *, may_end: bool = False
    ) -> Child:
        """Start one; its stdout and stderr go to <name>.log. `may_end`: it does its work and ends with 0."""
        log = self._log_directory / f"{name}.log"
        process = await spawn(Program(name, command, env or {}), log)
        child = self._children[name] = Child(name, process, log, may_end)
        self._waiting[name] = asyncio.create_task(self._watch(child))
        return child

    def let_end(self, *names: str) -> None:
        """From now on these may end with 0."""
        for name in names:
            self._children[name].may_end = True

    async def ended(self, name: str) -> None:
        """Wait until this one has ended; ProcessDiedError if any has died by then."""
        await self.guard(_finished(self._waiting[name]))

    async def guard(self, work: Coroutine[object, object, T]) -> T:
        """Do this work; a child that dies meanwhile, also one started by it, ends it with ProcessDiedError."""
        task, death = asyncio.create_task(work), asyncio.create_task(self._died.wait())
        try:
            await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
            self.raise_if_died()
            return await task
        finally:
            task.cancel()
            death.cancel()
            await asyncio.wait([task, death])

    def raise_if_died(self) -> None:
        dead = [child for child in self._children.values() if child.died]
        if dead:
            raise (self._first_dead or dead[0]).error()

    async def stop(self) -> None:
        """End all, with what they started in their groups: SIGTERM, the time of grace, SIGKILL."""
        for child in self._children.values():
            if child.process.returncode is None:
                signal_group(child.process.pid, signal.SIGTERM)
        await self._buried(self._grace_s)
        for child in self._children.values():  # groups can outlive their leaders
            signal_group(child.process.pid, signal.SIGKILL)
        await self._buried(KILLED_S)

    async def _watch(self, child: Child) -> None:
        await child.process.wait()
        if child.died:
            self._first_dead = self._first_dead or child
            self._died.set()

    async def _buried(self, timeout_s: float) -> None:
        if self._waiting:
            await asyncio.wait(self._waiting.values(), timeout=timeout_s)


def last_lines(log: Path, count: int = LAST_LINES) -> list[str]:
    """The end of a log; not read whole, as one may be long."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 16_384))
        return file.read().decode(errors="replace").splitlines()[-count:]


async def _finished(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])
