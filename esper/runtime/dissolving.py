"""Groups of a worker that was evicted alone: where they stood goes on record, and then they are destroyed."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

import structlog

from esper.bus.connect import Redis
from esper.bus.faults import UnavailableError
from esper.bus.names import POSITIONED, key
from esper.bus.tidy import forget_group
from esper.errors import SettingError
from esper.leyline import contracts as pb

UNREAD_S = 3.0
"""Nobody has read by a group for so long, before it goes: a runtime that lives reads twice a second."""
GIVE_UP_S = 60.0
"""One that is still read by then belongs to a worker that has joined again."""

log = structlog.get_logger()


class Evicting(Protocol):
    """What a coordinator answers, as far as it is about evictions."""

    evicted_alone: list[str]

    @property
    def decisions(self) -> Iterable[object]: ...


class Dissolving:
    """What is left to destroy, and since when. Begun anew by each leader from the decisions that it reads."""

    def __init__(self, redis: Redis, run_id: str) -> None:
        self._redis, self._run_id = redis, run_id
        self._since_s: dict[str, float] = {}

    async def record(self, outcome: Evicting) -> None:
        """Put into each abort that evicts a worker alone where its groups stand; tell the operator."""
        if not outcome.evicted_alone:
            return
        processes = (each for decision in outcome.decisions for each in evicted_by(decision))
        for process in processes:
            if process.worker in outcome.evicted_alone:
                process.positions.update(await self._positions(process.worker))
                self._since_s[process.worker] = time.monotonic()
                log.error("worker.evicted", evicted=process.worker, positions=dict(process.positions))

    def resume(self, decisions: Iterable[object]) -> None:
        """Go on with what an earlier leader may have left."""
        for decision in decisions:
            if isinstance(decision, pb.BarrierProposal):
                self._forget(decision.roster)
            for process in evicted_by(decision):
                if process.positions:
                    self._since_s[process.worker] = time.monotonic()

    async def proceed(self) -> None:
        """Destroy whatever nobody reads by any more. A Redis that is away is asked again with the next call."""
        now_s = time.monotonic()
        for worker, since_s in list(self._since_s.items()):
            if now_s - since_s >= UNREAD_S and (await self._destroyed(worker) or now_s - since_s >= GIVE_UP_S):
                del self._since_s[worker]

    async def _destroyed(self, worker: str) -> bool:
        """Whether nothing is left to do; where a group is read by again, that is for later, or never."""
        try:
            for name in POSITIONED:
                await forget_group(self._redis, key(self._run_id, name), worker, idle_ms=int(UNREAD_S * 1000))
        except (SettingError, UnavailableError):
            return False
        log.info("groups.destroyed", evicted=worker)
        return True

    async def _positions(self, worker: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name in POSITIONED:
            stream = key(self._run_id, name)
            groups: Any = await self._redis.xinfo_groups(stream) if await self._redis.exists(stream) else []
            for group in groups:
                if group["name"] == worker.encode():
                    found[name] = group["last-delivered-id"].decode()
        return found

    def _forget(self, workers: Collection[str]) -> None:
        for worker in workers:
            self._since_s.pop(worker, None)


def evicted_by(decision: object) -> Iterable[pb.EvictedProcess]:
    """Processes that this ends."""
    return decision.evicted if isinstance(decision, pb.BarrierAbort) else ()
