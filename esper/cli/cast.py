"""The processes of a demo: started one kind at a time, and the death of any of them ends it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from esper.cli.fleet import Fleet, fleet
from esper.cli.plan import planned
from esper.errors import EsperError
from esper.runtime.runfile import Process, RunFile
from esper.runtime.supervise import ProcessDiedError, Supervisor, last_lines
from esper.runtime.unit import Plan


@dataclass(frozen=True, slots=True)
class Cast:
    """One run, of which nothing that dies is started again."""

    fleet: Fleet
    supervisor: Supervisor
    tiers: Sequence[Sequence[Plan]]

    async def start_servers(self) -> None:
        """Coordinator and aggregators."""
        await self._start(plan for tier in self.tiers[:0:-1] for plan in tier)

    async def start_trainers(self) -> None:
        """Ranks of one process group on this machine, each in its region."""
        await self._start(self.tiers[0])

    async def run_script(self, name: str, module: str) -> None:
        """A controller's script: start it, and wait until it has ended with 0."""
        command = ["python", "-m", module]
        program = self.fleet.place.program(name, command, Process(command=command), "controller")
        await self.supervisor.start(name, program.command, program.environment, may_end=True)
        await self.supervisor.ended(name)

    @contextmanager
    def naming_redis(self) -> Iterator[None]:
        """Where Redis has died, that is what went wrong, whoever met it first."""
        try:
            yield
        except EsperError as error:
            redis = self.fleet.redis
            if redis is None or (code := redis.exit_code) is None:
                raise
            log = self.fleet.place.logs / "redis.log"
            shutil.copyfile(redis.log, log)  # the original goes with the run
            raise ProcessDiedError("redis", code, log, last_lines(log)) from error

    def ask_trainers_to_end(self) -> None:
        for plan in self.tiers[0]:
            self.supervisor.let_end(*(program.name for program in plan.programs))
            if plan.stop_file is not None:
                plan.stop_file.touch()

    async def _start(self, plans: Iterable[Plan]) -> None:
        for plan in plans:
            fresh = plan.fresh()
            for program in plan.programs:
                await self.supervisor.start(program.name, program.command, {**program.environment, **fresh})


@asynccontextmanager
async def cast(read: RunFile) -> AsyncIterator[Cast]:
    """Whatever was started is gone at the end, before the run's log is kept."""
    async with fleet(read) as run:
        supervisor = Supervisor(run.place.logs)
        try:
            yield Cast(run, supervisor, planned(read, run.place))
        finally:
            await supervisor.stop()
