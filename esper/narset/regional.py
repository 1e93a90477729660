"""Tier 1: folds the telemetry of one region 32:1, each packet once."""

from __future__ import annotations

from collections.abc import Mapping

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.narset.columns import Sighting, reduce_packets
from esper.narset.reduction import Reduction, fitting
from esper.narset.state import TierState
from esper.narset.statistics import Origin
from esper.narset.window import WINDOW, Windows

WINDOW_S = 0.010
GAP_S = 5.0
GONE_S = 300.0
"""Silent for so long, and followed by another process of its name, a source is gone: its window is forgotten."""
LOOK_EVERY_S = 60.0
SOURCE = "source:"


class Regional:
    """Packets in, aggregates of their region out. Knows neither Redis nor a clock: times are handed in, in seconds.

    What on_frame has taken in, `take` gives back whole, and `changed` records; the three belong into one settlement.
    """

    state: TierState

    def __init__(self, region: str) -> None:
        self.region = region
        self._met_s: dict[str, float] = {}
        self._known_s: dict[str, float] = {}
        self._look_at_s = 0.0
        self.num_repeats = 0
        self.load({})

    def load(self, fields: Mapping[bytes, bytes]) -> None:
        """Begin again from what is on record; what was in hand is forgotten."""
        self.state = TierState(SOURCE, fields)
        self._windows: Windows[Sighting] = Windows(WINDOW_S)
        self._left_out = Reduction()

    def on_frame(self, frame: pb.TelemetryFrame, now_s: float) -> None:
        """Take in the packets not met before; the others are counted."""
        if frame.region != self.region:
            detail = f"a frame of region {frame.region!r} on the stream of region {self.region!r}"
            raise RefusedError(pb.ReasonCode.REASON_WRONG_CONTEXT, detail)
        name = f"{frame.source}:{frame.incarnation}"
        met = self.state.window(name)
        self._met_s[name] = now_s
        new = [packet for packet in frame.packets if met.admit(packet.sequence)]
        self._left_out.num_duplicates += len(frame.packets) - len(new)
        self.num_repeats += len(frame.packets) - len(new)
        self._left_out.num_shed += met.drop(frame.shed)
        self._windows.add([_sighting(frame.source, packet) for packet in new], now_s)

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until `take` is due; None: not before another frame."""
        held = self._windows.wait_s(now_s)
        holes = [window.first_hole_s for window in self.state.windows.values()]
        waits = [max(0.0, hole_s + GAP_S - now_s) for hole_s in holes if hole_s is not None]
        return min(waits if held is None else [held, *waits], default=None)

    def take(self, now_s: float) -> list[pb.AggregatedTelemetry]:
        """Close everything in hand. What was left out since the last time is told in the last aggregate."""
        for name, window in self.state.windows.items():
            missing = window.declare(now_s, GAP_S)
            if missing:
                self._left_out.num_gaps += missing
                self.state.window(name)
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            self._forget(now_s)
        return self._close()

    def changed(self) -> dict[str, bytes]:
        """What to put on record together with what was taken."""
        return self.state.changed()

    def _forget(self, now_s: float) -> None:
        """A source that only pauses keeps its window, however long: without it all before would count as missing."""
        newest: dict[str, float] = {}
        for name, met_s in self._met_s.items():
            newest[source_of(name)] = max(met_s, newest.get(source_of(name), met_s))
        for name in list(self.state.windows):
            silent_since_s = self._met_s.get(name, self._known_s.setdefault(name, now_s))
            followed = newest.get(source_of(name), silent_since_s) > silent_since_s
            if followed and now_s - silent_since_s >= GONE_S:
                self.state.drop(name)
                self._met_s.pop(name, None)
                self._known_s.pop(name, None)

    def _close(self) -> list[pb.AggregatedTelemetry]:
        closed = self._windows.take()
        reductions = [reduce_packets(window.items) for window in closed]
        for window, reduction in zip(closed, reductions, strict=True):
            reduction.num_messages = window.num_messages
        if not reductions and self._left_out != Reduction():
            reductions.append(Reduction())
        if reductions:
            reductions[-1].merge(self._left_out)
            self._left_out = Reduction()
        return [self._message(reduction) for reduction in reductions]

    def _message(self, reduction: Reduction) -> pb.AggregatedTelemetry:
        partial = reduction.num_packets < WINDOW
        return fitting(reduction.message(self.region, self.state.next_sequence(), partial=partial))


def source_of(name: str) -> str:
    """The source in the name of a window, its incarnation left out."""
    return name.rpartition(":")[0]


def _sighting(source: str, packet: pb.TelemetryPacket) -> Sighting:
    return Sighting(Origin(packet.timestamp_ns, packet.source_subsystem or source, packet.sequence), packet)
