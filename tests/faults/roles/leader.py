"""The coordinator as it is, but that it dies, or stands still, at the point that it is told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from esper.bus import connect
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.leyline import contracts as pb
from esper.leyline.envelope import unpack
from esper.leyline.kinds import Role, kind_of
from esper.runtime import process
from esper.runtime.coordinator.lease import Standby
from esper.tamiyo.coordinator import Coordinator
from esper.tamiyo.outcome import Entry, Outcome
from esper.workers.coordinator import CoordinatorSettings, coordinator_loop
from tests.faults.roles import arguments

SAID = {
    kind_of(pb.LeaderAnnouncement): "announcement",
    kind_of(pb.BarrierProposal): "proposal",
    kind_of(pb.BarrierCommit): "commit",
}
POINTS = (
    *("before_announcement", "before_proposal", "after_proposal", "between_votes"),
    *("before_commit", "during_commit", "after_commit"),
)


@dataclass(frozen=True, slots=True)
class Told(arguments.Told):
    """Its lease, and the point at which it ends."""

    lease_s: float
    point: str = ""  # where it ends; empty: nowhere
    after: int = 0  # so many times it passes the point before that
    stops: bool = False  # it stands still there, instead of dying


class Fate:
    """Counts how often a point is passed."""

    def __init__(self, told: Told) -> None:
        self._told, self._left = told, told.after

    def passes(self, point: str) -> None:
        """The process ends, or stands still until it is told to go on, where this is its point."""
        if point != self._told.point:
            return
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGSTOP if self._told.stops else signal.SIGKILL)


class FatefulOutbox(Outbox):
    """Knows what it settles."""

    fate: Fate

    async def settle(self, settlement: Settlement) -> list[str]:
        said = {SAID.get(unpack(write.fields[b"m"]).header.kind, "") for write in settlement.writes}
        self._pass(f"before_{each}" for each in said)
        settling = asyncio.create_task(super().settle(settlement))
        if "commit" in said:
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # by now it is written, and no reply was read
            self.fate.passes("during_commit")
        written = await settling
        self._pass(f"after_{each}" for each in said)
        return written

    def _pass(self, points: Iterable[str]) -> None:
        for point in points:
            self.fate.passes(point)


class FatefulCoordinator(Coordinator):
    """Passes a point where some of the votes are in."""

    fate: Fate

    def on_vote(self, vote: pb.BarrierVote, entry: Entry, now_ns: int) -> Outcome:
        outcome = super().on_vote(vote, entry, now_ns)
        if self.barrier is not None and 0 < len(self.barrier.missing) < len(self.barrier.roster):
            self.fate.passes("between_votes")
        return outcome


async def main(stopping: asyncio.Event) -> None:
    told = Told.begin("coordinator")
    chosen = CoordinatorSettings(name=told.name, lease_s=told.lease_s)
    async with connect.reader(told.url) as reader, connect.writer(told.url) as writer:
        coordinating = coordinator_loop(told.keys(Role.COORDINATOR), chosen, reader, writer)
        rule, outbox = FatefulCoordinator(told.name), FatefulOutbox(writer)
        rule.fate = outbox.fate = Fate(told)
        coordinating.rule, coordinating.outbox, coordinating.windows.outbox = rule, outbox, outbox
        if await Standby(writer, coordinating.windows.hash_key, told.lease_s).until_free(stopping):
            await coordinating.serve(stopping)


if __name__ == "__main__":
    process.run(main)
