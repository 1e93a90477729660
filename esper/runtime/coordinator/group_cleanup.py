"""Groups of a worker that others go on without: they are destroyed, else no log would be trimmed any more."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

import structlog

from esper.bus.connect import Redis
from esper.bus.faults import UnavailableError
from esper.bus.group.groups import group_of
from esper.bus.names import POSITIONED, key
from esper.bus.upkeep.tidy import forget_group
from esper.errors import SettingError
from esper.leyline import contracts as pb

UNREAD_S = 3.0
"""Nobody has read by a group for so long, before it goes: a runtime that lives reads twice a second."""
GIVE_UP_S = 60.0
"""One that is still read by then belongs to a worker that has joined again."""

log = structlog.get_logger()


class Departures(Protocol):
    """What a coordinator answers, as far as it is about who is in the run no more."""

    evicted_alone: list[str]
    left: list[str]

    @property
    def decisions(self) -> Iterable[object]: ...


class GroupCleanup:
    """What is left to destroy, and since when. Begun anew by each leader from the decisions that it reads."""

    def __init__(self, redis: Redis, run_id: str, unread_s: float = UNREAD_S) -> None:
        self._redis, self._run_id, self._unread_s = redis, run_id, unread_s
        self._since_s: dict[str, float] = {}
        self._evicted: dict[str, int] = {}
        """The newest process of each name: one that does not hear of it is told again."""

    async def record(self, outcome: Departures) -> None:
        """Put into each abort that evicts a worker alone where its groups stand, before they go; tell the operator."""
        if not outcome.evicted_alone:
            return
        processes = (each for decision in outcome.decisions for each in evicted_by(decision))
        for process in processes:
            if process.worker in outcome.evicted_alone:
                process.positions.update(await self._positions(process.worker))
                self.begin([process.worker])
                if self._evicted.get(process.worker) != process.incarnation:
                    log.error("worker.evicted", evicted=process.worker, positions=dict(process.positions))
                self._evicted[process.worker] = process.incarnation

    def begin(self, workers: Iterable[str]) -> None:
        """From now on nobody needs the groups of these."""
        self._since_s |= dict.fromkeys(workers, time.monotonic())

    def follow(self, outcome: Departures) -> None:
        """Begin with who has left; let be whoever is asked for votes again."""
        if outcome.left:
            self.begin(outcome.left)
        for decision in outcome.decisions if self._since_s else ():
            if isinstance(decision, pb.BarrierProposal):
                self._forget(decision.roster)

    def resume(self, decisions: Iterable[object]) -> None:
        """Go on with what an earlier leader may have left: of who was evicted alone, or is in no roster any more."""
        roster: set[str] = set()
        for decision in decisions:
            if isinstance(decision, pb.BarrierProposal):
                self.begin(roster.difference(decision.roster))
                self._forget(decision.roster)
                roster = set(decision.roster)
            self.begin(process.worker for process in evicted_by(decision) if process.positions)
            self._evicted |= {process.worker: process.incarnation for process in evicted_by(decision)}

    async def proceed(self) -> None:
        """Destroy whatever nobody reads by any more. A Redis that is away is asked again with the next call."""
        now_s = time.monotonic()
        for worker, since_s in list(self._since_s.items()):
            if now_s - since_s >= self._unread_s and (await self._destroyed(worker) or now_s - since_s >= GIVE_UP_S):
                del self._since_s[worker]

    async def _destroyed(self, worker: str) -> bool:
        """Whether nothing is left to do; where a group is read by again, that is for later, or never."""
        try:
            for name in POSITIONED:
                await forget_group(self._redis, key(self._run_id, name), worker, idle_ms=int(self._unread_s * 1000))
        except (SettingError, UnavailableError):
            return False
        log.info("groups.destroyed", of=worker)
        return True

    async def _positions(self, worker: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name in POSITIONED:
            if (facts := await group_of(self._redis, key(self._run_id, name), worker)) is not None:
                found[name] = facts["last-delivered-id"].decode()
        return found

    def _forget(self, workers: Collection[str]) -> None:
        for worker in workers:
            self._since_s.pop(worker, None)


def evicted_by(decision: object) -> Iterable[pb.EvictedProcess]:
    """Processes that this ends."""
    return decision.evicted if isinstance(decision, pb.BarrierAbort) else ()
