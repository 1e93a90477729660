"""All processes of a run: kept going, restarted one by one, and ended in the order in which nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import structlog

from esper.errors import EsperError, SettingError, near
from esper.runtime.crew.procs import ancestor, rss_bytes
from esper.runtime.crew.unit import ENDED, Plan, State, Unit
from esper.runtime.ending import end, meanwhile

MOST_NOTES = 1_000
"""That wait for somebody who watches; who is slower misses some."""

log = structlog.get_logger()


class Server(Protocol):
    """What the others need, and is ended after them: Redis, where it is the run's own."""

    async def tend(self) -> None: ...

    def death(self) -> EsperError | None: ...

    def row(self) -> dict[str, Any]: ...


class NotReadyError(EsperError):
    """A process that was started anew does not do its work in time; those after it were left as they are."""

    def __init__(self, unit: str, state: str, log_file: str) -> None:
        self.unit, self.state, self.log_file = unit, state, log_file
        super().__init__(f"{unit} is {state}, not ready; those after it were left as they are; see {log_file}")


class Notes:
    """What happens, for any number of listeners. Each line is logged as well."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[dict[str, Any]]] = set()

    def __call__(self, event: str, **facts: Any) -> None:
        log.info(event, **facts)
        for listener in self._listeners:
            if not listener.full():
                listener.put_nowait({"event": event, **facts})

    async def while_doing(self, work: Coroutine[Any, Any, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """What is said while this is done; what goes wrong with it is raised at the end. It ends with who listens."""
        listener: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MOST_NOTES)
        self._listeners.add(listener)
        task = asyncio.create_task(work)
        heard = asyncio.create_task(listener.get())
        try:
            while not task.done() or heard.done():
                if heard.done():
                    note, heard = heard.result(), asyncio.create_task(listener.get())
                    yield note
                else:
                    await asyncio.wait([task, heard], return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    await asyncio.sleep(0)  # for `heard` to take what was said last
            await task
        finally:
            self._listeners.discard(listener)
            await end([task, heard])


class Crew:
    """Units by tier: the first ends first. `settled` waits, before a tier ends, for what is on its way to it."""

    def __init__(
        self,
        tiers: Sequence[Sequence[Unit]],
        settled: Callable[[str], Awaitable[None]],
        notes: Notes,
        ready_s: float,
        server: Server | None = None,
    ) -> None:
        self.tiers, self.notes, self.ready_s, self.server = tiers, notes, ready_s, server
        self._settled = settled
        self._tasks: dict[Unit, asyncio.Task[None]] = {}
        self._serving: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._is_rolling = False
        self.stopping, self.drained, self._hurried = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @property
    def units(self) -> list[Unit]:
        return [unit for tier in self.tiers for unit in tier]

    @property
    def was_any_killed(self) -> bool:
        """Whether one had to be, as it did not end in its time."""
        return any(unit.was_killed for unit in self.units)

    def start(self, later: Collection[str] = ()) -> None:
        """All at once, but `later`, which wait until they are begun: each waits for what it needs of the others."""
        if self.server is not None:
            self._serving = [asyncio.create_task(self.server.tend())]
        for unit in self.units:
            if unit.plan.name not in later:
                self._begin(unit)

    def begin(self, name: str) -> None:
        """A unit that has waited."""
        self._begin(self._named(name))

    async def done(self, name: str) -> None:
        """Return once a unit that was begun is done; ProcessDiedError: it is given up."""
        unit = self._named(name)
        if (task := self._tasks.get(unit)) is not None:
            await asyncio.wait([task])
            task.result()
        if unit.state is State.FAILED:
            raise unit.death()

    async def keep(self, *, past_training: bool = False) -> None:
        """Return once told to stop, or, unless it is kept past that, once nobody trains any more.

        ProcessDiedError: one that all need is given up.
        """
        async with meanwhile(self.stopping.wait()) as [stop]:
            while not (stop.done() or (self._is_done() and not past_training)):
                self._changed.clear()
                async with meanwhile(self._changed.wait()) as change:
                    tasks = [stop, *change, *self._serving, *self._tasks.values()]
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                self._look_after()

    async def drain(self) -> bool:
        """End one tier after the other; whether none had to be killed. What goes wrong is raised after the last."""
        self.stopping.set()
        wrong: list[BaseException] = []
        for tier in self.tiers:
            if tier:
                try:
                    await self._until_settled(tier[0].plan.role)
                except EsperError as error:
                    wrong.append(error)
            ended = await asyncio.gather(*map(self._stop, tier), return_exceptions=True)
            wrong += [each for each in ended if each is not None]
        await end(self._serving)
        self.drained.set()
        for each in wrong:
            raise each
        return not self.was_any_killed

    def hurry(self) -> None:
        """Kill what is left, and wait for nobody."""
        self._hurried.set()
        for unit in self.units:
            unit.hurry()

    def on_ready(self, pid: int) -> None:
        """A process, or one that it has started, says that it does its work."""
        for unit, leader in self._led(pid):
            unit.on_ready(leader)

    def on_trained(self, pid: int) -> None:
        """The same, of a trainer that has trained a step."""
        for unit, _ in self._led(pid):
            unit.restarts.worked()

    async def roll(self, role: str) -> None:
        """Start anew the units of a role, or the one of this name or rank: each once the one before is ready."""
        chosen = self._chosen(role)
        if self._is_rolling:
            raise SettingError("role", role, "no restart under way: there is one already")
        self._is_rolling = True
        try:
            for unit in chosen:
                if self.stopping.is_set():
                    raise SettingError("role", role, "a run that goes on: this one ends")
                await self._renew(unit)
        finally:
            self._is_rolling = False

    def rows(self) -> list[dict[str, Any]]:
        """Each process, as `esper ps` shows it."""
        pids = [process.pid for unit in self.units for process in unit.processes.values()]
        rss = rss_bytes(pids)
        rows = [row(unit, program.name, rss) for unit in self.units for program in unit.plan.programs]
        return rows + ([self.server.row()] if self.server is not None else [])

    def _led(self, pid: int) -> list[tuple[Unit, int]]:
        """The unit in which this process runs, and the one of its processes that has started it; none: no unit's."""
        running = ((unit, each) for unit in self.units for each in unit.processes.values() if each.returncode is None)
        leaders = {each.pid: unit for unit, each in running}
        leader = ancestor(pid, leaders)
        return [] if leader is None else [(leaders[leader], leader)]

    def _named(self, name: str) -> Unit:
        [unit] = [unit for unit in self.units if unit.plan.name == name]
        return unit

    def _begin(self, unit: Unit) -> None:
        unit.begin()
        self._tasks[unit] = asyncio.create_task(unit.tend())
        self._changed.set()

    async def _until_settled(self, role: str) -> None:
        """Wait for what is on its way to a tier, unless nobody is to be waited for."""
        waits: list[asyncio.Task[Any]] = [
            asyncio.ensure_future(self._settled(role)),
            asyncio.create_task(self._hurried.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if waits[0].done():
                waits[0].result()
        finally:
            await end(waits)

    async def _stop(self, unit: Unit) -> None:
        unit.tell(again=False)
        if unit in self._tasks:
            await self._tasks[unit]

    async def _renew(self, unit: Unit) -> None:
        if unit.state in ENDED:
            self._begin(unit)
        else:
            unit.ready.clear()
            unit.tell(again=True)
        async with meanwhile(unit.ready.wait(), self.stopping.wait()) as either:
            tasks = [*either, self._tasks[unit]]
            await asyncio.wait(tasks, timeout=self.ready_s, return_when=asyncio.FIRST_COMPLETED)
        if not unit.ready.is_set():
            first = unit.plan.programs[0].name
            raise NotReadyError(unit.plan.name, str(unit.state), str(unit.log_of(first)))

    def _chosen(self, role: str) -> list[Unit]:
        chosen = [unit for unit in self.units if role in names_of(unit.plan)]
        if not chosen:
            known = sorted({name for unit in self.units for name in names_of(unit.plan)})
            raise SettingError("role", role, f"one of {', '.join(known)}{near(role, known)}")
        return chosen

    def _is_done(self) -> bool:
        """Whether one who trained is done, and nobody trains any more: the others are done too, or given up."""
        states = {unit.state for unit in self.units if unit.plan.role == "trainer"}
        return State.DONE in states and states <= {State.DONE, State.FAILED}

    def _look_after(self) -> None:
        for task in self._serving:
            if task.done():
                task.result()
        for unit, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[unit]
                task.result()
                if unit.state is State.FAILED and unit.plan.essential:
                    raise unit.death()


def names_of(plan: Plan) -> set[str]:
    """By what a unit is asked for: also by each of the processes in it, as `esper ps` shows them."""
    return {plan.role, plan.name, *(program.name for program in plan.programs)}


def row(unit: Unit, name: str, rss: Mapping[int, int]) -> dict[str, Any]:
    process = unit.processes.get(name)
    pid = process.pid if process is not None and process.returncode is None else None
    return {
        "name": name,
        "role": unit.plan.role,
        "state": str(unit.state),
        "pid": pid,
        "restarts": unit.restarts.num_restarts,
        "rss_bytes": 0 if pid is None else rss.get(pid, 0),
        "last_end": unit.last_end,
    }
