"""`esper up`: a run from one file, kept going until it is told to end, in the background where one likes."""

from __future__ import annotations

import asyncio
import json as notation
import math
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from esper.bus.runs import RunRecord, list_live
from esper.cli.interrupting import ends
from esper.cli.output.dashboard import show
from esper.cli.output.quiet import log_to
from esper.cli.output.terminal import console
from esper.cli.running.detach import detached
from esper.cli.running.fleet import Fleet, LogWait, example, example_file, fleet
from esper.cli.running.keeping import drained_at_end, kept
from esper.cli.running.lingering import goes_with_login, told_once_gone
from esper.errors import EsperError
from esper.leyline.terminal_text import printable
from esper.runtime import notify
from esper.runtime.crew import runfile
from esper.runtime.crew.crash_report import last_lines
from esper.runtime.crew.crew import Crew
from esper.runtime.crew.runfile import RunFile
from esper.runtime.crew.unit import ENDED, State
from esper.runtime.ending import end
from esper.runtime.watching.live import of_record, watching
from esper.view.picture import Picture

DONE, FAILED = 0, 1
LOOK_S = 0.1
AGAIN_S = 1.0
DEATHS = ("process.died", "process.given_up")
STAY = "loginctl enable-linger keeps it, or another XDG_RUNTIME_DIR"
MOST_CHARACTERS = 400
"""Of a line that a process has said last."""


def up(
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Run file; else a small run of two ranks.")] = None,
    name: Annotated[str, typer.Option(help="Name by which other commands find the run; else the file's.")] = "",
    runs_dir: Annotated[Path | None, typer.Option(help="Where the run's logs go; else the file's.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave it in the background once all are ready.")] = False,
    as_example: Annotated[bool, typer.Option("--example", help="Print a run file with every key, and end.")] = False,
    told_fd: Annotated[int, typer.Option(hidden=True, help="Where a detached run says that it is ready.")] = -1,
) -> None:
    """Start a run, and keep it going until it is told to end."""
    if as_example:
        print(example(), end="")
        return
    given = {"--file": file, "--name": name or None, "--runs-dir": runs_dir}
    if detach:
        raise typer.Exit(detached([part for option, value in given.items() if value for part in (option, str(value))]))
    changes: dict[str, Any] = {"name": name} if name else {}
    changes |= {} if runs_dir is None else {"runs_dir": runs_dir}
    read = example_file(**changes) if file is None else runfile.load(file).model_copy(update=changes)
    raise typer.Exit(asyncio.run(Keeper(told_fd).keep(read)))


class Keeper:
    """One run from its start to its end, with the signals of this process."""

    def __init__(self, told_fd: int = -1) -> None:
        self._told_fd = told_fd
        self._is_awaited = told_fd >= 0  # whoever has started this waits until it is ready
        self._console = self._errors = Console(quiet=True)
        self._crew: Crew | None = None
        self._log_wait = LogWait()
        self._failure: EsperError | None = None
        self._this: asyncio.Task[Any] | None = None

    async def keep(self, read: RunFile) -> int:
        """Exit status: 0 where it ended in order, 1 where one was given up or had to be killed, or its log is lost."""
        self._this = asyncio.current_task()
        for number in (signal.SIGINT, *ends()):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        try:
            async with fleet(read, self._log_wait) as run, kept(run) as crew:
                with log_to(run.local.logs / "up.log"), self._shown():
                    self._crew = crew
                    status = await self._kept(run, crew)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        return FAILED if self._log_wait.is_log_lost else status

    async def _kept(self, run: Fleet, crew: Crew) -> int:
        self._say(f"run {run.record.run_id}; in another terminal: esper ps {run.record.name}")
        if self._is_awaited:
            self._complain(f"run {run.record.run_id} comes up, and is waited for; its logs: {run.local.logs}")
        for other in namesakes(run.record):
            self._complain(f"{other} goes on, and is reached by its id; {run.record.name} means the new run")
        if self._is_awaited and goes_with_login(run.record.directory):
            self._complain(f"{run.record.directory} goes with your last login, and the way to the run with it: {STAY}")
        telling = asyncio.create_task(self._tell(run, crew))
        beside = [asyncio.create_task(self._announce(run, crew)), asyncio.create_task(told_once_gone(run.record))]
        if self._told_fd < 0:
            beside.append(asyncio.create_task(self._screen(run)))
        crew.start()
        try:
            async with drained_at_end(crew):
                await crew.keep()
        except EsperError as error:  # given up, or not to be started
            self._failure = error
        finally:
            await end(beside)
        await telling
        return FAILED if self._failure is not None or crew.was_any_killed else DONE

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """What it says goes to the terminal, unless that is another's by then; what is wrong always, and why last."""
        with console(sys.stderr) as self._errors:
            with ExitStack() as stack:
                if self._told_fd < 0:
                    self._console = stack.enter_context(console(sys.stdout))
                yield
            if self._failure is not None:
                self._complain(str(self._failure))

    def _on_signal(self) -> None:
        """The first one ends the run in order, the next one at once."""
        if self._crew is None:
            assert self._this is not None
            self._this.cancel()
        elif self._crew.stopping.is_set():
            self._crew.hurry()
            if self._crew.drained.is_set():
                self._log_wait.hurried.set()
        else:
            self._crew.stopping.set()

    async def _tell(self, run: Fleet, crew: Crew) -> None:
        """Say what happens to processes, to the last of them."""
        async with aclosing(crew.notes.while_doing(crew.drained.wait())) as notes:
            async for note in notes:
                words = last_word(note, run.local.logs)
                self._say(sentence(note) + words)
                if self._is_awaited and (note["event"] in DEATHS or note.get("ever_ready") is False):
                    self._complain(f"{sentence(note)}; see {run.local.logs}{words}")

    async def _announce(self, run: Fleet, crew: Crew) -> None:
        """Once every unit is ready, say so to whoever has started this; the run ends where that one is gone by then."""
        late_at = time.monotonic() + run.read.ready_s
        while waits := [unit.plan.name for unit in crew.units if unit.state not in (State.READY, *ENDED)]:
            if self._told_fd >= 0 and is_unread(self._told_fd):
                crew.stopping.set()
                return
            if self._told_fd >= 0 and time.monotonic() >= late_at:
                late_at = math.inf
                tell(self._told_fd, {"waits_for": waits, "after_s": run.read.ready_s, "logs": str(run.local.logs)})
            await asyncio.sleep(LOOK_S)
        if any(unit.state is State.FAILED and unit.plan.essential for unit in crew.units):
            return  # the run ends, and says why
        notify.ready()
        self._is_awaited = False
        if self._told_fd >= 0:
            with (run.local.logs / "up.log").open("ab") as log:
                for descriptor in (1, 2):  # from here on nobody is at the terminal
                    os.dup2(log.fileno(), descriptor)
            tell(self._told_fd, {"run": run.record.run_id, "logs": str(run.local.logs)})
            os.close(self._told_fd)

    async def _screen(self, run: Fleet) -> None:
        """What the run itself says, also again after its Redis was away."""
        while True:
            with suppress(EsperError):
                picture = Picture(run.record.run_id)
                async with watching(of_record(run.record), "up", picture) as watch:
                    await watch.along(show(picture, self._console, lambda: "running"))
            await asyncio.sleep(AGAIN_S)

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def _complain(self, line: str) -> None:
        self._errors.print(f"esper: {line}", highlight=False, soft_wrap=True, markup=False)


def namesakes(record: RunRecord) -> list[str]:
    """Ids of the live runs of this machine that bear the name of this one."""
    return [each.run_id for each in list_live() if each.name == record.name and each.run_id != record.run_id]


def is_unread(descriptor: int) -> bool:
    """Whether nobody can read any more what is written to this pipe."""
    looked = select.poll()
    looked.register(descriptor, 0)
    return bool(looked.poll(0))


def tell(descriptor: int, told: dict[str, Any]) -> None:
    """A line for whoever waits for a detached run; it may have given up meanwhile."""
    with suppress(BrokenPipeError):
        os.write(descriptor, notation.dumps(told).encode() + b"\n")


def last_word(note: dict[str, Any], logs: Path) -> str:
    """What a process that died has said last, to go behind what is told of its death; empty where there is nothing."""
    if not (name := note.get("process")):  # of redis, or of what was not started
        return ""
    words = [line for line in last_lines(logs / f"{name}.log") if line.strip()]
    last = printable(words[-1]) if words else ""
    return f"; it said: {last[:MOST_CHARACTERS]}{'…' * (len(last) > MOST_CHARACTERS)}" if words else ""


def sentence(note: dict[str, Any]) -> str:
    """What has happened, for people."""
    return printable(_said(note))


def _said(note: dict[str, Any]) -> str:
    match note:
        case {"event": "process.died", "unit": unit, "ended_with": how, "again_in_s": delay_s}:
            return f"{unit} ended with {how}; it is started again in {delay_s:g} s"
        case {"event": "process.given_up", "unit": unit, "ended_with": how, "limit": 0}:
            return f"{unit} ended with {how}, and is not to be started again: it is given up"
        case {"event": "process.given_up", "unit": unit, "ended_with": how, "ever_ready": False, "starts": starts}:
            return f"{unit} ended with {how}, and was not ready in any of {starts} starts: it is given up"
        case {"event": "process.given_up", "unit": unit, "ended_with": how, "ever_worked": False, "starts": starts}:
            return f"{unit} ended with {how}, and trained no step in any of {starts} starts: it is given up"
        case {"event": "process.given_up", "unit": unit, "ended_with": how}:
            return f"{unit} ended with {how}, too often: it is given up"
        case {"event": "process.killed", "unit": unit, "waited_s": waited_s}:
            return f"{unit} did not end within {waited_s:g} s, and was killed"
        case {"event": "process.unasked", "unit": unit, "why": why}:
            return f"{unit} can't be asked to end by its file, and is sent a signal: {why}"
        case {"event": "redis.not_started", "why": why}:
            return f"redis is not started: {why}"
        case {"event": "tier.unsettled", "tier": tier, "why": why}:
            return f"what was on its way to the {tier} tier has not come through: {why}"
        case {"event": "process.done", "unit": unit, "ever_ready": False}:
            return f"{unit} has ended by itself without having been ready, as a trainer is once attach() has joined it"
        case {"event": "process.started", "unit": unit}:
            return f"{unit} is started"
        case {"event": event, "unit": unit}:
            return f"{unit} is {event.partition('.')[2]}"
    return ", ".join(f"{key} {value}" for key, value in note.items())
