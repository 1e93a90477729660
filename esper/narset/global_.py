"""Tier 2: folds the aggregates of all regions 32:1, each once, and keeps the running total."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened
from esper.narset import totals
from esper.narset.reduction import Reduction, fitting, read_reduction
from esper.narset.state import TierState
from esper.narset.transient_metrics import lasting
from esper.narset.window import Windows

WINDOW_S = 0.020
REGION = "region:"


class Global:
    """Regional aggregates in, global ones and a total out. Knows neither Redis nor a clock: times are handed in.

    A region numbers its aggregates upwards from 1, and leaves numbers out only where its record was lost: what was met
    before is told by its number alone.
    """

    state: TierState

    def __init__(self, regions: Collection[str]) -> None:
        self._regions = frozenset(regions)
        self.num_repeats = 0
        self.load({})

    def load(self, fields: Mapping[bytes, bytes]) -> None:
        """Begin again from what is on record; what was in hand is forgotten."""
        self.state = TierState(REGION, fields)
        self._windows: Windows[Reduction] = Windows(WINDOW_S)
        self._total = read_reduction(totals.decode(fields).aggregate)

    def on_opened(self, opened: Opened, now_s: float) -> None:
        """Take in what was opened, which is an aggregate."""
        assert isinstance(opened.message, pb.AggregatedTelemetry)
        self.on_aggregate(opened.message, now_s)

    def on_aggregate(self, aggregate: pb.AggregatedTelemetry, now_s: float) -> None:
        """Take in an aggregate, unless it was met before."""
        if aggregate.region not in self._regions:
            detail = f"an aggregate of region {aggregate.region!r}; expected one of {', '.join(sorted(self._regions))}"
            raise RefusedError(pb.ReasonCode.REASON_WRONG_CONTEXT, detail)
        reduction = read_reduction(aggregate)
        reduction.num_messages = 1
        if self.state.window(aggregate.region).admit(aggregate.sequence):
            self._windows.add([reduction], now_s)
        else:
            self.num_repeats += 1

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until `take` is due; None: not before another aggregate."""
        return self._windows.wait_s(now_s)

    def take(self, now_s: float) -> list[pb.AggregatedTelemetry]:
        """Close everything in hand and add it to the total."""
        del now_s
        taken = []
        for window in self._windows.take():
            folded = Reduction()
            for reduction in window.items:
                folded.merge(reduction)
            self._total.merge(replace(folded, metrics=lasting(folded.metrics)))
            taken.append(fitting(folded.message("", self.state.next_sequence(), partial=window.partial)))
        return taken

    def changed(self) -> dict[str, bytes]:
        """What to put on record together with what was taken: the total, and which aggregates are in it."""
        total = self._total
        return self.state.changed() | totals.encode(
            totals.Totals(
                counted=total.num_packets,
                regional=total.num_messages,
                global_=self.state.sequence,
                shed=total.num_shed,
                gaps=total.num_gaps,
                duplicates=total.num_duplicates,
                aggregate=total.message("", self.state.sequence, partial=False),
            )
        )


def met_of(region: str) -> bytes:
    """The field of the total in which it stands what of a region was met."""
    return f"{REGION}{region}".encode()
