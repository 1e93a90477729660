"""The newest heartbeat of each worker, and who of them still takes part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from esper.leyline import contracts as pb
from esper.leyline.entries import entry_ms
from esper.leyline.heartbeats import UNKNOWN, Sealed, is_away, is_older
from esper.leyline.seal import Opened

Workers: TypeAlias = Mapping[str, pb.Heartbeat]

GONE_MS, AWAY_MS = 10_000, 40_000
"""A replica of which nothing was heard for so long while others were, in a compilation or the like for the longer one:
a run gives one up after half of that."""


@dataclass
class Liveness:
    """By worker name. A replayed heartbeat changes nothing."""

    beats: dict[str, pb.Heartbeat] = field(default_factory=dict)
    at_ms: dict[str, int] = field(default_factory=dict)
    """When each was heard, by the server's clock."""
    _sealed: dict[str, Sealed] = field(default_factory=dict)

    def note(self, opened: Opened) -> None:
        """Take a message, unless it is no heartbeat, or not the newest one."""
        beat, sealed = opened.message, Sealed.of(opened)
        if not isinstance(beat, pb.Heartbeat):
            return
        known = self.beats.get(beat.worker)
        if known is None or not is_older(beat, sealed, known, self._sealed.get(beat.worker, UNKNOWN)):
            self.beats[beat.worker], self._sealed[beat.worker] = beat, sealed
            self.at_ms[beat.worker] = entry_ms(opened.entry_id)

    def age_s(self, worker: str, now_ms: int) -> float:
        """Since its newest heartbeat was sealed: both by the server's clock, also where that was set back."""
        return max(0.0, now_ms - self._sealed[worker].at_ns // 1_000_000) / 1000

    @property
    def present(self) -> Workers:
        """Without replicas that have left or fallen silent while others go on, and ranks of a group of another size."""
        if not self.beats:
            return {}
        newest = max(self.at_ms, key=self.at_ms.__getitem__)
        size, now_ms = self.beats[newest].world_size, self.at_ms[newest]
        same = {name: beat for name, beat in self.beats.items() if beat.world_size == size}
        return same if size > 1 else {name: same[name] for name in same if not self._is_gone(name, now_ms)} or same

    def _is_gone(self, name: str, now_ms: int) -> bool:
        beat = self.beats[name]
        most_ms = AWAY_MS if is_away(beat) else GONE_MS
        return beat.HasField("report") or now_ms - self.at_ms[name] > most_ms


def complete(workers: Workers) -> bool:
    """Whether every rank of the run has been heard of."""
    return bool(workers) and len(workers) >= world_size(workers)


def world_size(workers: Workers) -> int:
    """Ranks of the process group, as the workers heard of say; of replicas each is the whole of its world."""
    return max((beat.world_size for beat in workers.values()), default=0)


def seed_states(workers: Workers, seed: str) -> list[pb.SeedState]:
    """The seed as each rank shows it, by worker name; a rank that does not know it shows an empty state."""
    return [
        next((state for state in beat.seeds if state.seed_id == seed), pb.SeedState(seed_id=seed))
        for _, beat in sorted(workers.items())
    ]
