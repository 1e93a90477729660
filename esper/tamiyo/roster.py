"""Who trains, by rank, and when each was last heard."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from esper.leyline import contracts as pb
from esper.tamiyo.world import Catalogue

AWAY_NS = 20_000_000_000
"""The silence of one that said that it is busy: the runtime beside it may have to be started anew afterwards."""
FORM_NS = 30_000_000_000
MOST_EVICTED = 65_536
"""Incarnations remembered, of the newest evictions."""


@dataclass
class Member:
    """One rank: its newest heartbeat, and what it has last said that it can germinate."""

    worker: str
    incarnation: int
    heartbeat: pb.Heartbeat
    since_ns: int
    heard_ns: int
    spoke_ns: int = 0  # when it was heard from its boundary, and not through the runtime beside it
    catalogue: pb.Heartbeat = field(default_factory=pb.Heartbeat)
    has_left: bool = False

    @property
    def is_away(self) -> bool:
        """Whether it said that it leaves its boundary for a while; a paused one stays there, and goes on beating."""
        return self.heartbeat.busy not in (pb.BusyWith.BUSY_NONE, pb.BusyWith.BUSY_PAUSED)

    def hear(self, heartbeat: pb.Heartbeat, now_ns: int) -> None:
        self.heartbeat, self.heard_ns = heartbeat, now_ns
        if not heartbeat.repeated:
            self.spoke_ns = now_ns
        self.has_left |= heartbeat.HasField("report")
        if heartbeat.sites or heartbeat.blueprints:
            self.catalogue = heartbeat


class Roster:
    """The ranks of a process group. Complete once each rank of the world was heard; changed by a restart of any."""

    def __init__(self) -> None:
        self._members: dict[int, Member] = {}
        self._world_size = 0
        self._evicted: dict[int, None] = {}  # incarnations, the newest last

    def hear(self, heartbeat: pb.Heartbeat, now_ns: int) -> bool:
        """Note a heartbeat. True where this rank is another process, or the world another size, than was known.

        One of a process that was evicted says nothing any more: it is on its way out.
        """
        if heartbeat.incarnation in self._evicted:
            return False
        known = self._members.get(heartbeat.rank)
        replaced = known is not None and (known.worker, known.incarnation) != (heartbeat.worker, heartbeat.incarnation)
        resized = self._world_size not in (0, heartbeat.world_size)
        if known is None or replaced:
            known = Member(heartbeat.worker, heartbeat.incarnation, heartbeat, now_ns, now_ns)
        known.hear(heartbeat, now_ns)
        self._world_size = heartbeat.world_size
        self._members[heartbeat.rank] = known
        self._members = {rank: self._members[rank] for rank in sorted(self._members) if rank < heartbeat.world_size}
        return replaced or resized

    @property
    def is_complete(self) -> bool:
        return 0 < self._world_size == len(self._members) == len(set(self.names))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.worker for member in self._members.values())

    @property
    def departed(self) -> list[Member]:
        return [member for member in self._members.values() if member.has_left]

    @property
    def newest_applied(self) -> int:
        """The newest round that any rank has carried out."""
        return max((member.heartbeat.round_applied for member in self._members.values()), default=0)

    @property
    def is_under_way(self) -> bool:
        """Whether any rank has begun, and so may have met decisions."""
        return self.newest_applied > 0 or any(member.heartbeat.step > 0 for member in self._members.values())

    def has_applied(self, number: int, effective_step: int) -> bool:
        """Whether every rank has said that it carried a round out, or that it stands past its step."""
        beats = [member.heartbeat for member in self._members.values()]
        return all(beat.round_applied >= number or beat.step > effective_step for beat in beats)

    def catalogue(self) -> Catalogue:
        return Catalogue.of([member.catalogue for member in self._members.values()])

    def excuse(self, now_ns: int) -> None:
        """Nobody could be heard until now: whoever is silent, is so from here on."""
        for member in self._members.values():
            member.heard_ns = member.spoke_ns = now_ns

    def hung(self, timeout_ns: int, now_ns: int) -> list[str]:
        """Those of a process group that were not heard for so long. None where one has left: its run is ending.

        Nor one that was last heard before the newest process of the group began: a new group is forming, in which
        another process takes its place, and has `FORM_NS` for that.
        """
        if self._world_size < 2 or not self.is_complete or self.departed:
            return []
        began_ns = max(member.since_ns for member in self._members.values())
        is_formed = now_ns - began_ns >= FORM_NS
        candidates = [each for each in self._members.values() if is_formed or each.heard_ns >= began_ns]
        limits = {each.worker: AWAY_NS if each.is_away else timeout_ns for each in candidates}
        return [each.worker for each in candidates if now_ns - each.heard_ns >= limits[each.worker]]

    def evict(self) -> list[pb.EvictedProcess]:
        """Forget the whole group, and hear no process of it again."""
        members = self._members.values()
        evicted = [pb.EvictedProcess(worker=member.worker, incarnation=member.incarnation) for member in members]
        self.let_go(evicted)
        return evicted

    def let_go(self, evicted: Collection[pb.EvictedProcess]) -> None:
        """Hear none of these processes any more."""
        gone = dict.fromkeys(process.incarnation for process in evicted)
        self._members = {rank: each for rank, each in self._members.items() if each.incarnation not in gone}
        self._evicted |= gone
        while len(self._evicted) > MOST_EVICTED:
            self._evicted.pop(next(iter(self._evicted)))

    def silent(self, workers: Collection[str], since_ns: int, timeout_ns: int, now_ns: int) -> list[str]:
        """Those of the workers that came to a boundary, or were asked, longer ago than the timeout.

        Not who said that it would be away, to compile or to evaluate: a round ends for it by its own limit.
        """
        heard = {member.worker: member.spoke_ns for member in self._members.values()}
        away = {member.worker for member in self._members.values() if member.is_away}
        workers = [worker for worker in workers if worker not in away]
        return [worker for worker in workers if now_ns - max(heard.get(worker, 0), since_ns) >= timeout_ns]
