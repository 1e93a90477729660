"""The processes of a demo: the crew of `esper up`, of which nothing that dies is started again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from esper.cli.output.quiet import log_to
from esper.cli.running.fleet import Fleet, fleet
from esper.cli.running.keeping import drained_at_end, kept
from esper.cli.running.plan import planned
from esper.errors import EsperError
from esper.leyline.kinds import Role
from esper.runtime.crew.crew import Crew
from esper.runtime.crew.runfile import Process, Restart, RunFile
from esper.runtime.crew.unit import Plan
from esper.runtime.ending import along, meanwhile

T = TypeVar("T")

GRACE_S = 3.0  # from SIGTERM to SIGKILL
NEVER = Restart(limit=0)


class ToldToEndError(EsperError):
    """Somebody ended the run before its work was done."""

    def __init__(self) -> None:
        super().__init__("the run was told to end before it was done")


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One run, and a controller's scripts that are played in it, each begun when its time has come."""

    fleet: Fleet
    crew: Crew
    scripts: tuple[str, ...]

    def start(self) -> None:
        """All but the scripts."""
        self.crew.start(later=self.scripts)

    async def guard(self, work: Coroutine[object, object, T]) -> T:
        """Do this work; the death of any process ends it with ProcessDiedError."""
        async with meanwhile(self._kept()) as keeping:
            try:
                return await along(work, keeping)
            except EsperError as error:
                redis = self.crew.server
                if redis is not None and (death := redis.death()) is not None:
                    raise death from error  # whoever met it first
                raise

    def ask_trainers_to_end(self) -> None:
        """They come to the end of their epoch first. NotAskedError: one of them can't be asked."""
        for unit in self.crew.units:
            if unit.plan.role == "trainer":
                unit.let_end()

    async def _kept(self) -> None:
        await self.crew.keep(past_training=True)
        raise ToldToEndError


@asynccontextmanager
async def demo_run(read: RunFile, scripts: dict[str, str]) -> AsyncIterator[DemoRun]:
    """A run with these scripts, by the module of each; whatever was started is gone before the run's log is kept."""
    process = {
        name: Process(command=["python", "-m", module], keys=Role.CONTROLLER) for name, module in scripts.items()
    }
    played = read.model_copy(update={"restart": NEVER, "process": process})
    async with fleet(played) as run:
        at_once = [once(plan) for tier in planned(played, run.local) for plan in tier]
        with log_to(run.local.logs / f"{read.name}.log"):
            async with kept(run, [at_once]) as crew, drained_at_end(crew):
                yield DemoRun(run, crew, tuple(scripts))


def once(plan: Plan) -> Plan:
    """Its death is the run's, also where it ends well before it is asked to; it is not waited for at the run's end."""
    may_end = plan.may_end and plan.role != "trainer"
    return replace(plan, restart=NEVER, essential=True, may_end=may_end, stop_s=GRACE_S, finish_s=0.0)
