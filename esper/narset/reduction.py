"""One aggregate in the making: mergeable figures of many packets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from esper.leyline import contracts as pb
from esper.narset.statistics import MOST_COUNTED, Statistics, read

MAX_EVENTS = 32
MAX_METRICS = 1024  # as many as one message may name; later names are left out
MAX_BYTES = 900 * 1024  # of one aggregate, below the 1 MiB that an envelope takes
_COUNTS = (
    "num_packets",
    "num_messages",
    "num_duplicates",
    "num_gaps",
    "num_shed",
    "num_out_of_order",
    "num_late",
    "num_skewed",
)


@dataclass(slots=True)
class Reduction:
    """Figures over disjoint packets; two of them merge into the one over both. Knows no region and no sequence."""

    num_packets: int = 0
    num_messages: int = 0
    first_timestamp_ns: int = 0
    last_timestamp_ns: int = 0
    max_step: int = 0
    num_duplicates: int = 0
    num_gaps: int = 0
    num_shed: int = 0
    num_out_of_order: int = 0
    num_late: int = 0
    num_skewed: int = 0
    metrics: dict[str, Statistics] = field(default_factory=dict)
    levels: Counter[str] = field(default_factory=Counter)
    events: list[pb.TelemetryEvent] = field(default_factory=list)

    def merge(self, other: Reduction) -> None:
        """Fold another one; of the events the newest 32 are kept."""
        self._merge_times(other)
        self.num_packets += other.num_packets
        self.num_messages += other.num_messages
        self.max_step = max(self.max_step, other.max_step)
        self.num_duplicates += other.num_duplicates
        self.num_gaps += other.num_gaps
        self.num_shed += other.num_shed
        self.num_out_of_order += other.num_out_of_order
        self.num_late += other.num_late
        self.num_skewed += other.num_skewed
        self.levels += other.levels
        self.events = [*self.events, *other.events][-MAX_EVENTS:]
        for name, statistics in other.metrics.items():
            if name in self.metrics or len(self.metrics) < MAX_METRICS:
                self.metrics.setdefault(name, Statistics()).merge(statistics)

    def _merge_times(self, other: Reduction) -> None:
        if other.num_packets:
            first = other.first_timestamp_ns
            self.first_timestamp_ns = min(self.first_timestamp_ns, first) if self.num_packets else first
            self.last_timestamp_ns = max(self.last_timestamp_ns, other.last_timestamp_ns)

    def message(self, region: str, sequence: int, *, partial: bool) -> pb.AggregatedTelemetry:
        """What goes on the wire."""
        aggregate = pb.AggregatedTelemetry(
            version=1,
            region=region,
            sequence=sequence,
            partial=partial,
            first_timestamp_ns=self.first_timestamp_ns,
            last_timestamp_ns=self.last_timestamp_ns,
            max_step=self.max_step,
            level_counts={level: min(number, MOST_COUNTED) for level, number in self.levels.items()},
            events=self.events,
            **{name: min(getattr(self, name), MOST_COUNTED) for name in _COUNTS},
        )
        for name, statistics in self.metrics.items():
            statistics.write(aggregate.metrics[name])
        return aggregate


def read_reduction(aggregate: pb.AggregatedTelemetry) -> Reduction:
    """The figures of a message. Raises RefusedError where a sketch cannot be read."""
    return Reduction(
        num_packets=aggregate.num_packets,
        num_messages=aggregate.num_messages,
        first_timestamp_ns=aggregate.first_timestamp_ns,
        last_timestamp_ns=aggregate.last_timestamp_ns,
        max_step=aggregate.max_step,
        num_duplicates=aggregate.num_duplicates,
        num_gaps=aggregate.num_gaps,
        num_shed=aggregate.num_shed,
        num_out_of_order=aggregate.num_out_of_order,
        num_late=aggregate.num_late,
        num_skewed=aggregate.num_skewed,
        metrics={name: read(statistics) for name, statistics in aggregate.metrics.items()},
        levels=Counter(aggregate.level_counts),
        events=list(aggregate.events),
    )


def fitting(aggregate: pb.AggregatedTelemetry) -> pb.AggregatedTelemetry:
    """The same, without its sketches and events where it would not fit an envelope; counts and sums always do."""
    if aggregate.ByteSize() > MAX_BYTES:
        for statistics in aggregate.metrics.values():
            statistics.ClearField("sketch")
        aggregate.ClearField("events")
    return aggregate
