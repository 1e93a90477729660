"""What a load came to: how many of what, and how long each part of the way took."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from esper.bench.load.latencies import Latencies
from esper.bench.load.settings import Kind

MAIN: dict[Kind, str] = {"command": "applied", "telemetry": "global", "barrier": "round"}
"""The latency that a load of this kind is about; it is drawn."""


@dataclass(slots=True)
class Tally:
    """Counts by name and latencies by name, in the order in which they come about on the way of a request."""

    kind: Kind
    counts: Counter[str] = field(default_factory=Counter)
    latencies: dict[str, Latencies] = field(default_factory=dict)

    def note(self, name: str, taken_s: float) -> None:
        """One latency, in seconds."""
        self.latencies.setdefault(name, Latencies()).note(taken_s * 1e3)

    def add(self, other: Tally) -> None:
        """All of another one of the same kind."""
        self.counts.update(other.counts)
        for name, latencies in other.latencies.items():
            self.latencies.setdefault(name, Latencies()).add(latencies)

    @property
    def main(self) -> Latencies:
        return self.latencies.get(MAIN[self.kind], Latencies())
