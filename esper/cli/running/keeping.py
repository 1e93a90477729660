"""Puts together what keeps a run going: its units, what they say of themselves, and who may ask for what."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from esper.bus import connect, names
from esper.bus.embedded import EmbeddedRedis
from esper.bus.faults import UnavailableError
from esper.cli.running.fleet import Fleet, patience_s
from esper.cli.running.plan import planned
from esper.errors import BusError, EsperError, SettingError
from esper.runtime import notify
from esper.runtime.crew import control, logfiles
from esper.runtime.crew.crash_report import ProcessDiedError, last_lines
from esper.runtime.crew.crew import Crew, Notes
from esper.runtime.crew.procs import rss_bytes
from esper.runtime.crew.restarts import Restarts
from esper.runtime.crew.runfile import Restart
from esper.runtime.crew.spawn import said
from esper.runtime.crew.unit import Plan, Say, Unit
from esper.runtime.ending import meanwhile
from esper.runtime.watching.settled import settled

LOOK_S = 0.1

log = structlog.get_logger()


class KeptRedis:
    """The run's own Redis: what it had stored when it died is there again once it is started anew."""

    def __init__(self, redis: EmbeddedRedis, policy: Restart, notes: Say, logs: Path) -> None:
        self.redis, self._notes, self._logs = redis, notes, logs
        self._restarts, self._last_end, self._answers = Restarts(policy), "", True
        self._restarts.worked()

    async def tend(self) -> None:
        """Start it again whenever it has died; ProcessDiedError: it is given up."""
        while True:
            await asyncio.sleep(LOOK_S)
            if (code := self.redis.exit_code) is not None:
                await self._again(code)

    async def _again(self, code: int) -> None:
        """Until it runs: a start that fails counts as one more death."""
        self._last_end, self._answers = said(code), False
        while not self.redis.is_running():
            delay_s = self._restarts.died(time.monotonic())
            if delay_s is None:
                raise self._death(code)
            self._notes("process.died", unit="redis", ended_with=self._last_end, again_in_s=round(delay_s, 3))
            await asyncio.sleep(delay_s)
            try:
                self.redis.launch()  # from this thread, as it ends with the one that started it
                await asyncio.to_thread(self.redis.wait)  # it may have much to load
            except BusError as error:
                self._notes("redis.not_started", why=str(error))
        self._answers = True
        self._notes("process.ready", unit="redis")

    def death(self) -> ProcessDiedError | None:
        """None: it runs."""
        code = self.redis.exit_code
        return None if code is None else self._death(code)

    def _death(self, code: int) -> ProcessDiedError:
        """With its log put beside the others, as far as the disk takes it: where it lies it goes with the run."""
        log = self._logs / "redis.log"
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.redis.log, log)
        except OSError:
            log = self.redis.log
        return ProcessDiedError("redis", code, log, last_lines(log))

    def row(self) -> dict[str, Any]:
        pid = self.redis.process.pid if self.redis.process is not None and self.redis.is_running() else None
        return {
            "name": "redis",
            "role": "redis",
            "state": "waiting" if pid is None else "ready" if self._answers else "starting",
            "pid": pid,
            "restarts": self._restarts.num_restarts,
            "rss_bytes": 0 if pid is None else rss_bytes([pid])[pid],
            "last_end": self._last_end,
        }


@asynccontextmanager
async def kept(run: Fleet, plans: Sequence[Sequence[Plan]] = ()) -> AsyncIterator[Crew]:
    """A crew that hears its processes and answers callers while the block runs; nobody is started yet.

    `plans`: its tiers, where they are not those of the run file.
    """
    notes, path = Notes(), run.record.directory / "notify"
    own = None if run.redis is None else KeptRedis(run.redis, run.read.restart, notes, run.local.logs)

    until_settled = Draining(run, notes)
    environment = {notify.SOCKET: str(path)}
    tiers = [
        [Unit(plan, run.local.logs, environment, notes) for plan in tier]
        for tier in plans or planned(run.read, run.local)
    ]
    crew = Crew(tiers, until_settled, notes, run.read.ready_s, own)
    logs = run.read.logs
    with notify.Notices(path, {notify.READY: crew.on_ready, notify.TRAINED: crew.on_trained}):
        async with (
            control.answering(run.record.directory / control.NAME, lambda asked: answer(crew, asked)),
            meanwhile(logfiles.kept_short(run.local.logs, int(logs.megabytes * (1 << 20)), logs.kept)),
        ):
            yield crew


@asynccontextmanager
async def drained_at_end(crew: Crew) -> AsyncIterator[None]:
    """End the crew after this block. Where the block fails that is what went wrong; the rest is said in the log."""
    try:
        yield
    except BaseException:
        try:
            await crew.drain()
        except EsperError as error:
            log.warning("run.not_drained", why=str(error))
        raise
    await crew.drain()


@dataclass
class Draining:
    """Waits, before a tier of aggregators ends, until it has folded all that was said to it, or it takes too long.

    A Redis outside that does not answer is asked once, and no tier after that waits for it.
    """

    run: Fleet
    notes: Say
    away: str = ""

    async def __call__(self, role: str) -> None:
        told = {"regional": ("telemetry", "regional"), "global": ("regional", "global")}.get(role)
        if told is None:
            return
        if self.away:
            self.notes("tier.unsettled", tier=role, why=self.away)
            return
        record, read = self.run.record, self.run.read
        groups = [(names.region_key(record.run_id, region, told[0]), told[1]) for region in read.regions]
        try:
            async with connect.client(record.reach, patience_s(self.run.redis)) as redis:
                left = await settled(redis, groups, read.settle_s)
        except EsperError as error:  # Redis is away, or the password for it
            self.away = str(error) if isinstance(error, UnavailableError) and self.run.redis is None else ""
            self.notes("tier.unsettled", tier=role, why=str(error))
        else:
            if left:
                self.notes("tier.unsettled", tier=role, why=f"{left:g} entries wait after {read.settle_s:g} s")


async def answer(crew: Crew, asked: control.Request) -> AsyncGenerator[dict[str, Any], None]:
    """What a caller is told: rows, or what happens until it is done."""
    match asked:
        case {"do": "ps"}:
            for row in crew.rows():
                yield row
            return
        case {"do": "down"}:
            crew.stopping.set()
            doing: Coroutine[Any, Any, Any] = crew.drained.wait()
        case {"do": "restart", "role": str(role)}:
            doing = crew.roll(role)
        case _:
            raise SettingError("request", asked, '{"do": "ps"}, {"do": "down"} or {"do": "restart", "role": ...}')
    async with aclosing(crew.notes.while_doing(doing)) as notes:
        async for note in notes:
            yield note
