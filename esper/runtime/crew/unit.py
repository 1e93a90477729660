"""Processes that live and die together: one server, one replica, or the ranks of one group."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto
from pathlib import Path
from typing import Any, Protocol

from esper.errors import EsperError
from esper.runtime.crew import spawn
from esper.runtime.crew.crash_report import ProcessDiedError, last_lines
from esper.runtime.crew.restarts import Restarts
from esper.runtime.crew.runfile import Restart
from esper.runtime.crew.spawn import NotStartedError, Program, said


class State(StrEnum):
    """Where a unit stands. done: ended by itself, as it may."""

    STARTING = auto()
    READY = auto()
    WAITING = auto()
    STOPPING = auto()
    STOPPED = auto()
    DONE = auto()
    FAILED = auto()


ENDED = (State.STOPPED, State.DONE, State.FAILED)


class NotAskedError(EsperError):
    """The file that asks processes to end can't be made, as where the disk is full."""

    def __init__(self, name: str, stop_file: Path, why: str) -> None:
        self.name, self.stop_file, self.why = name, stop_file, why
        super().__init__(f"{name} can't be asked to end by its file {stop_file}: {why}")


class Say(Protocol):
    """Tells those who watch what has happened."""

    def __call__(self, event: str, **facts: Any) -> None: ...


@dataclass(frozen=True)
class Plan:
    """What a unit consists of. `fresh`: what each start adds to the environments, as a port that is free now.

    `trains`: to be ready is no work yet, as the first step may be what it always dies of.
    """

    name: str
    role: str
    programs: tuple[Program, ...]
    restart: Restart
    stop_s: float = 5.0
    may_end: bool = False
    essential: bool = True
    tells_ready: bool = True
    trains: bool = False
    stop_file: Path | None = None
    finish_s: float = 0.0
    fresh: Callable[[], Mapping[str, str]] = field(default=dict)


class Unit:
    """Starts its processes, starts them again when one has died, and ends them. Knows no other unit.

    A first start that fails is raised; a later one counts as one more death.
    """

    def __init__(self, plan: Plan, logs: Path, environment: Mapping[str, str], say: Say) -> None:
        self.plan, self._logs, self._environment, self._say = plan, logs, environment, say
        self.state, self.last_end = State.STOPPED, ""
        self.restarts = Restarts(plan.restart)
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.ready, self._wish = asyncio.Event(), asyncio.Event()
        self._goes_on = True
        self._told: set[str] = set()
        self._first_dead = ""  # the others often die of it
        self._has_run = self._was_ready = False
        self._num_starts = 0
        self._unstarted: EsperError | None = None
        self.was_killed = self.is_hurried = False

    def log_of(self, program: str) -> Path:
        return self._logs / f"{program}.log"

    def begin(self) -> None:
        """It is to run, whatever became of it before."""
        self._goes_on, self.is_hurried, self.state = True, False, State.STARTING
        self.restarts.forgive()

    async def tend(self) -> None:
        """Keep its processes going until it is told to end, they are done, or it is given up. After `begin`."""
        while self._goes_on:
            self._wish.clear()
            try:
                await self._start()
                ended = await self._until_ended()
            except EsperError as error:
                if not self._has_run:
                    raise
                ended, self._unstarted = True, error  # such as a system that is out of processes: it may pass
            finally:  # also where only some of them could be started
                await self._end()
            if ended and not await self._goes_on_after(self._first_code()):
                return
        self._is_now(State.STOPPED)

    def tell(self, *, again: bool) -> None:
        """End its processes in order; `again`: and start them anew."""
        self._goes_on = again
        self._wish.set()

    def hurry(self) -> None:
        """Wait for nobody any more, and start nothing again."""
        self.is_hurried = True
        self.tell(again=False)
        if self.state in (State.WAITING, *ENDED):
            return  # others may bear the numbers of its processes by now
        for process in self.processes.values():
            self.was_killed |= not spawn.is_gone(process)
            spawn.signal_group(process.pid, signal.SIGKILL)

    def let_end(self) -> None:
        """Ask its processes to end by themselves, by the file that they look at; from now on they may. NotAskedError"""
        self.plan = replace(self.plan, may_end=True)
        if self.plan.stop_file is not None:
            self._make_file(self.plan.stop_file)

    def death(self) -> EsperError:
        """Why it was given up: the one of its processes that ended first, with its last words, or was not started."""
        if self._unstarted is not None:
            return self._unstarted
        name = self._first_dead or self.plan.programs[0].name
        return ProcessDiedError(name, self._first_code(), self.log_of(name), last_lines(self.log_of(name)))

    def on_ready(self, pid: int) -> None:
        """One of its processes says that it does its work."""
        self._told |= {name for name, process in self.processes.items() if process.pid == pid}
        if self.state is State.STARTING and len(self._told) == len(self.plan.programs):
            self._is_now(State.READY)

    async def _start(self) -> None:
        self._forget_file()
        self._told, self._first_dead, self.processes, self._unstarted = set(), "", {}, None
        self._num_starts += 1
        self._say("process.started", unit=self.plan.name)
        self._is_now(State.STARTING)
        fresh = self._fresh()
        for program in self.plan.programs:
            self.processes[program.name] = await spawn.spawn(program, self.log_of(program.name), **fresh)
        self._has_run = True
        if not self.plan.tells_ready:
            self._is_now(State.READY)

    def _fresh(self) -> dict[str, str]:
        """What this start adds to the environments. NotStartedError: as where no descriptor is left for a port."""
        try:
            return {**self._environment, **self.plan.fresh()}
        except OSError as error:
            name = self.plan.programs[0].name
            raise NotStartedError(name, self.log_of(name), error.strerror or str(error)) from error

    async def _until_ended(self) -> bool:
        """Wait until one has failed, or all have ended; False: something else is wished before."""
        wish = asyncio.create_task(self._wish.wait())
        waits = {asyncio.create_task(self._watch(name)) for name in self.processes}
        left: set[asyncio.Task[Any]] = {wish, *waits}
        try:
            while not wish.done() and not self._is_over():
                _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in left:
                task.cancel()
        failed = (name for name, process in self.processes.items() if self._has_failed(process.returncode))
        self._first_dead = self._first_dead or next(failed, "")  # one may have died before it was watched
        return not wish.done()

    async def _watch(self, name: str) -> None:
        if self._has_failed(await self.processes[name].wait()):
            self._first_dead = self._first_dead or name

    def _first_code(self) -> int:
        """How the one that died first has ended; 0: none has died."""
        return self.processes[self._first_dead].returncode or 0 if self._first_dead else 0

    def _has_failed(self, code: int | None) -> bool:
        return code is not None and (code != 0 or not self.plan.may_end)

    def _is_over(self) -> bool:
        codes = [process.returncode for process in self.processes.values()]
        return None not in codes or any(map(self._has_failed, codes))

    async def _goes_on_after(self, code: int) -> bool:
        """What comes of an end that nobody has asked for; waits until the next start where there is one."""
        self.last_end = said(code) if self._unstarted is None else str(self._unstarted)
        if code == 0 and self.plan.may_end and self._unstarted is None:
            self._is_now(State.DONE, ever_ready=self._was_ready)
            return False
        delay_s = self.restarts.died(time.monotonic())
        if delay_s is None:
            ever = {"ever_ready": self._was_ready, "ever_worked": self.restarts.has_worked}
            tries = {"ended_with": self.last_end, "starts": self._num_starts, "limit": self.plan.restart.limit}
            self._say("process.given_up", unit=self.plan.name, process=self._first_dead, **tries, **ever)
            self._is_now(State.FAILED)
            return False
        facts = {"unit": self.plan.name, "ended_with": self.last_end, "again_in_s": round(delay_s, 3)}
        self._say("process.died", process=self._first_dead, **facts)
        self._is_now(State.WAITING)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._wish.wait()
        return True

    async def _end(self) -> None:
        """In order: by its file where it has one, then by SIGTERM, then by SIGKILL, which is said."""
        processes, worked = list(self.processes.values()), self.state is State.READY
        if any(process.returncode is None for process in processes):
            self._is_now(State.STOPPING)
            if worked and self._wish.is_set() and not self.is_hurried and self._told_by_file():
                await spawn.gone(processes, self.plan.finish_s)
        waited_s = 0.0 if self.is_hurried else self.plan.stop_s
        if not await spawn.end(processes, waited_s):
            self.was_killed = True
            self._say("process.killed", unit=self.plan.name, waited_s=waited_s)
        self._forget_file()

    def _told_by_file(self) -> bool:
        """Make the file that its processes look at, where they do; whether it is there."""
        if self.plan.stop_file is None:
            return False
        try:
            self._make_file(self.plan.stop_file)
        except NotAskedError as error:  # a signal needs no room
            self._say("process.unasked", unit=self.plan.name, why=error.why)
            return False
        return True

    def _make_file(self, stop_file: Path) -> None:
        try:
            stop_file.touch()
        except OSError as error:
            raise NotAskedError(self.plan.name, stop_file, error.strerror or str(error)) from error

    def _forget_file(self) -> None:
        """The next start does without it. On a disk that takes no change it stays, and nothing is started there."""
        if self.plan.stop_file is not None:
            with contextlib.suppress(OSError):
                self.plan.stop_file.unlink()

    def _is_now(self, state: State, **facts: Any) -> None:
        if state is not self.state:
            self.state = state
            if state is not State.STARTING:
                self._say(f"process.{state}", unit=self.plan.name, **facts)
        if state is State.READY:
            self._was_ready = True
            if not self.plan.trains:
                self.restarts.worked()
            self.ready.set()
        else:
            self.ready.clear()
