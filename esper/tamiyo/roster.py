"""Who trains, and when each was last heard: the ranks of one process group, or replicas that are in none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from esper.leyline import contracts as pb
from esper.leyline.heartbeats import PAUSED, is_away
from esper.leyline.succession import MOST, MOST_GENERATION
from esper.tamiyo.evicted_replicas import EvictedReplicas
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
    is_anew: bool = False  # in place of another process, and no round was decided since

    @property
    def is_away(self) -> bool:
        """Whether it said that it leaves its boundary for a while."""
        return is_away(self.heartbeat)

    def is_silent(self, timeout_ns: int, now_ns: int) -> bool:
        """Whether it was not heard for so long."""
        return now_ns - self.heard_ns >= (AWAY_NS if self.is_away else timeout_ns)

    def hear(self, heartbeat: pb.Heartbeat, now_ns: int) -> None:
        self.heartbeat, self.heard_ns = heartbeat, now_ns
        if not heartbeat.repeated:
            self.spoke_ns = now_ns
        self.has_left |= heartbeat.HasField("report")
        if heartbeat.sites or heartbeat.blueprints:
            self.catalogue = heartbeat


class Roster:
    """The ranks of a process group, by rank, complete once each rank of the world was heard; or replicas, by name.

    A replica is a worker that is the whole of its world. It comes and goes by itself, and its roster is complete once
    everybody was heard whom a log names that was read at the start.
    """

    def __init__(self) -> None:
        self._members: dict[tuple[int, str], Member] = {}
        self._world_size = 0
        self._names: tuple[str, ...] = ()
        self._has_namesakes = False
        self._departed: list[Member] = []
        self.newest_generation = 0
        """Of a roster, that anybody here has met."""
        self._newest_met: int | None = None  # until the next heartbeat: asked for at each tick
        self._heard_first_ns: int | None = None  # the same
        self._excused_ns = 0
        self._evicted: dict[int, None] = {}  # incarnations, the newest last
        self.lingering = EvictedReplicas()
        self._expected: dict[str, int] = {}  # replicas, and since when; 0: nobody was heard yet
        self._processes: dict[str, int] = {}  # of those that a log names, until they are heard

    def expect(self, names: Sequence[str], incarnations: Iterable[int] = ()) -> None:
        """A log names these: if they are replicas, none is left out before it was silent for the timeout.

        One that is heard under another incarnation is another process than was asked last.
        """
        self._expected = dict.fromkeys(names, 0)
        self._processes = dict(zip(names, incarnations, strict=False))

    def hear(self, heartbeat: pb.Heartbeat, now_ns: int) -> bool:
        """Note a heartbeat. True where this is another process than was known, or the world has another size.

        One of a process that was evicted, or has left, says nothing any more: it is on its way out.
        """
        if heartbeat.incarnation in self._evicted:
            self.lingering.hear(heartbeat, now_ns)
            return False
        resized = self._world_size not in (0, heartbeat.world_size)
        if resized and 1 in (self._world_size, heartbeat.world_size):
            self._members.clear()
        place = (0, heartbeat.worker) if heartbeat.world_size == 1 else (heartbeat.rank, "")
        member, replaced = self._member_at(place, heartbeat, now_ns)
        had_left = member.has_left
        member.hear(heartbeat, now_ns)
        self.newest_generation = max(self.newest_generation, min(heartbeat.roster_generation, MOST_GENERATION))
        self._newest_met = self._heard_first_ns = None
        self._world_size = heartbeat.world_size
        if resized or member.has_left != had_left or self._members.get(place) is not member:
            self._members[place] = member
            self._hold({at: self._members[at] for at in sorted(self._members) if at[0] < heartbeat.world_size})
        if self._expected:
            self._await_others(heartbeat, now_ns)
        return replaced or resized

    def _member_at(self, place: tuple[int, str], heartbeat: pb.Heartbeat, now_ns: int) -> tuple[Member, bool]:
        """Who beats from there, and whether that is another process than was known there, or is named by a log."""
        known = self._members.get(place)
        replaced = known is not None and (known.worker, known.incarnation) != (heartbeat.worker, heartbeat.incarnation)
        replaced |= self._processes.pop(heartbeat.worker, heartbeat.incarnation) != heartbeat.incarnation
        if known is not None and not replaced:
            return known, False
        newcomer = Member(heartbeat.worker, heartbeat.incarnation, heartbeat, now_ns, now_ns)
        newcomer.is_anew = replaced
        return newcomer, replaced

    def _await_others(self, heartbeat: pb.Heartbeat, now_ns: int) -> None:
        """Replicas that a log names are awaited from the first on that is heard; none beside ranks of a group."""
        self._expected.pop(heartbeat.worker, None)
        others = self._expected.items() if heartbeat.world_size == 1 else ()
        self._expected = {name: since or now_ns for name, since in others}

    def _hold(self, members: dict[tuple[int, str], Member]) -> None:
        """From now on these are all there are; what is asked for at each tick is made once."""
        self._members = members
        going_on = [member for member in members.values() if self.is_group or not member.has_left]
        self._names = tuple(member.worker for member in going_on or members.values())
        self._has_namesakes = len(set(self._names)) < len(members)
        self._departed = [member for member in members.values() if member.has_left]
        self._newest_met = self._heard_first_ns = None

    @property
    def is_group(self) -> bool:
        """Whether they are ranks of one process group, which hold equal weights and end together."""
        return self._world_size > 1

    @property
    def is_of_replicas(self) -> bool:
        """Whether those heard are in no group; False too where nobody was heard yet."""
        return self._world_size == 1

    @property
    def is_complete(self) -> bool:
        if not self.is_group:
            return bool(self._members) and not self._expected
        return self._world_size == len(self._members) and not self._has_namesakes

    @property
    def names(self) -> tuple[str, ...]:
        """By rank, or in the order of names: of replicas those that go on, where any does."""
        return self._names

    @property
    def is_over(self) -> bool:
        """Whether the run ends: a rank of a group has said farewell, or every replica has."""
        return bool(self.departed) and (self.is_group or len(self.departed) == len(self._members))

    @property
    def is_paused(self) -> bool:
        """Whether any is held by a pause of the run."""
        return any(member.heartbeat.busy == PAUSED for member in self._members.values())

    @property
    def is_anew(self) -> bool:
        """Whether each is another process than it was at the newest decision, which is void then."""
        return all(member.is_anew for member in self._members.values() if self.is_group or not member.has_left)

    def decided(self) -> None:
        """A round was decided by whoever is here."""
        for member in self._members.values():
            member.is_anew = False

    def incarnations_of(self, names: Iterable[str]) -> list[int]:
        """Of the processes of these names; 0: nobody is here under it."""
        known = {member.worker: member.incarnation for member in self._members.values()}
        return [known.get(name, 0) for name in names]

    @property
    def any_away(self) -> bool:
        """Whether any said that it leaves its boundary for a while."""
        return any(member.is_away for member in self._members.values())

    @property
    def departed(self) -> list[Member]:
        return self._departed

    @property
    def newest_met(self) -> int:
        """The newest round that any rank has carried out, or heard of."""
        if self._newest_met is None:
            beats = [member.heartbeat for member in self._members.values()]
            newest = max((max(beat.round_applied, beat.round_met) for beat in beats), default=0)
            self._newest_met = min(newest, MOST)
        return self._newest_met

    @property
    def heard_first_ns(self) -> int:
        """When that member was heard whose last word lies longest ago."""
        if self._heard_first_ns is None:
            self._heard_first_ns = min((each.heard_ns for each in self._members.values()), default=0)
        return self._heard_first_ns

    @property
    def is_under_way(self) -> bool:
        """Whether any rank has begun, and so may have met decisions."""
        met = self.newest_met > 0 or self.newest_generation > 0
        return met or any(member.heartbeat.step > 0 for member in self._members.values())

    def has_applied(self, number: int, effective_step: int) -> bool:
        """Whether every rank has said that it carried a round out, or that it stands past its step."""
        beats = (member.heartbeat for member in self._members.values())  # of ranks that stand still the first one tells
        return all(beat.round_applied >= number or beat.step > effective_step for beat in beats)

    def has_come_past(self, number: int, effective_step: int) -> bool:
        """Whether votes will tell what came of a round: of a group's every rank; of replicas' the furthest one's."""
        if self.is_group:
            return self.has_applied(number, effective_step)
        beats = [member.heartbeat for member in self._members.values()]
        return any(beat.round_applied >= number or beat.step > effective_step for beat in beats)

    def catalogue(self) -> Catalogue:
        return Catalogue([member.catalogue for member in self._members.values()])

    def settle(self) -> list[str]:
        """Hear no more of replicas that have left, once a roster is announced without them; their names.

        A heartbeat may come behind a farewell: the runtime repeats one for as long as its trainer says nothing.
        """
        if self.is_over or self.is_group:
            return []
        left = [pb.EvictedProcess(worker=each.worker, incarnation=each.incarnation) for each in self.departed]
        self.let_go(left)
        return [process.worker for process in left]

    def excuse(self, now_ns: int) -> None:
        """Nobody could be heard until now: whoever is silent, is so from here on."""
        for member in self._members.values():
            member.heard_ns = now_ns
        self._heard_first_ns, self._excused_ns = None, now_ns
        self._expected = dict.fromkeys(self._expected, now_ns)

    def shift(self, by_ns: int) -> None:
        """From now on the clock is so much ahead of what it was."""
        for member in self._members.values():
            member.since_ns, member.heard_ns, member.spoke_ns = (
                at_ns + by_ns for at_ns in (member.since_ns, member.heard_ns, member.spoke_ns)
            )
        self._heard_first_ns, self._excused_ns = None, self._excused_ns + by_ns
        self._expected = {name: since_ns and since_ns + by_ns for name, since_ns in self._expected.items()}

    def hung(self, timeout_ns: int, now_ns: int) -> list[str]:
        """Those that were not heard for so long, and are waited for."""
        if not self._expected and now_ns - self.heard_first_ns < min(timeout_ns, AWAY_NS):
            return []
        return self._hung_ranks(timeout_ns, now_ns) if self.is_group else self._hung_replicas(timeout_ns, now_ns)

    def _hung_ranks(self, timeout_ns: int, now_ns: int) -> list[str]:
        """None where a rank has left: its run is ending.

        Nor one that was last heard before the newest process of the group began: a new group is forming, in which
        another process takes its place, and has `FORM_NS` for that.
        """
        if not self.is_complete or self.departed:
            return []
        began_ns = max(member.since_ns for member in self._members.values())
        is_formed = now_ns - began_ns >= FORM_NS
        candidates = [each for each in self._members.values() if is_formed or each.heard_ns >= began_ns]
        return [each.worker for each in candidates if each.is_silent(timeout_ns, now_ns)]

    def _hung_replicas(self, timeout_ns: int, now_ns: int) -> list[str]:
        """Never all of them: where nobody goes on, nobody waits."""
        here = [member for member in self._members.values() if not member.has_left]
        hung = [member.worker for member in here if member.is_silent(timeout_ns, now_ns)]
        unheard = [name for name, since_ns in self._expected.items() if since_ns and now_ns - since_ns >= timeout_ns]
        return [*hung, *unheard] if len(hung) < len(here) else []

    def evict(self, workers: Collection[str] = ()) -> list[pb.EvictedProcess]:
        """Hear no process of these again: of a group always the whole, of replicas only the workers named."""
        known = [each for each in self._members.values() if self.is_group or each.worker in workers]
        evicted = [pb.EvictedProcess(worker=each.worker, incarnation=each.incarnation) for each in known]
        evicted += [pb.EvictedProcess(worker=name) for name in self._expected if name in workers]
        self.let_go(evicted)
        return evicted

    def let_go(self, evicted: Collection[pb.EvictedProcess]) -> None:
        """Hear none of these processes any more."""
        gone = dict.fromkeys(process.incarnation for process in evicted if process.incarnation)
        self._hold({at: each for at, each in self._members.items() if each.incarnation not in gone})
        for process in evicted:
            self._expected.pop(process.worker, None)
        self._evicted |= gone
        while len(self._evicted) > MOST_EVICTED:
            self._evicted.pop(next(iter(self._evicted)))

    def any_at(self, steps: Mapping[str, int]) -> bool:
        """Whether a rank of a group says that it stands at the step given for it: one that its vote holds it before."""
        beats = [member.heartbeat for member in self._members.values()]
        return self.is_group and any(beat.worker in steps and beat.step >= steps[beat.worker] for beat in beats)

    def silent(self, workers: Collection[str], since_ns: int, timeout_ns: int, now_ns: int) -> list[str]:
        """Those of the workers that came to a boundary, or were asked, longer ago than the timeout.

        Not who said that it would be away, to compile or to evaluate: a round ends for it by its own limit.
        """
        since_ns = max(since_ns, self._excused_ns)
        heard = {member.worker: member.spoke_ns for member in self._members.values()}
        away = {member.worker for member in self._members.values() if member.is_away}
        workers = [worker for worker in workers if worker not in away]
        return [worker for worker in workers if now_ns - max(heard.get(worker, 0), since_ns) >= timeout_ns]

    def at_boundary(self, workers: Collection[str], since_ns: int) -> list[str]:
        """Those of the workers that came to a boundary since then, and have not said that they leave it."""
        spoke = [member for member in self._members.values() if member.spoke_ns >= since_ns]
        here = {member.worker for member in spoke if not (member.is_away or member.has_left)}
        return [worker for worker in workers if worker in here]
