"""Tier 1: folds the telemetry of one region 32:1, each packet once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.checks import CLOCK_SLACK_MS, MS_NS
from esper.leyline.entries import entry_ms
from esper.leyline.envelope import Header
from esper.leyline.seal import Opened
from esper.leyline.validate.telemetry import Names
from esper.narset.columns import Gathering
from esper.narset.reduce import reduce_packets
from esper.narset.reduction import Reduction, fitting
from esper.narset.sequences import SequenceWindow
from esper.narset.state import TierState
from esper.narset.tables import UINT, Table, reduce_tables, table_of
from esper.narset.window import MOST_HELD, WINDOW, Windows
from esper.narset.zero_copy import Packed

WINDOW_S = 0.010
GAP_S = 5.0
GONE_S = 300.0
"""Silent for so long, and followed by another process of its name, a source is gone: its window is forgotten."""
LOST_FOR_S = 3600.0
"""After a loss of the record: a source that was met before it, and has paused ever since, tells nothing of that."""
LOOK_EVERY_S = 60.0
SOURCE = "source:"
SKEW_NS = CLOCK_SLACK_MS * MS_NS
"""A packet that says it is from so much later than its entry has a clock that is wrong: it is counted, and its entry's
time taken, or else no later value would ever be the last."""
FOR_EVER_NS = 1 << 63


class Regional:
    """Packets in, aggregates of their region out. Knows neither Redis nor a clock: times are handed in, in seconds.

    What on_opened has taken in, `take` gives back whole, and `changed` records; the three belong into one settlement.
    """

    state: TierState

    def __init__(self, region: str) -> None:
        self.region = region
        self._met_s: dict[str, float] = {}
        self._known_s: dict[str, float] = {}
        self._look_at_s = 0.0
        self._lost_since_s: float | None = None
        self.num_repeats = 0
        self.load({})

    def load(self, fields: Mapping[bytes, bytes]) -> None:
        """Begin again from what is on record; what was in hand is forgotten."""
        self.state = TierState(SOURCE, fields)
        self.state.pass_used()
        if self.state.is_restored:
            self._lost_since_s = None
        self._packets = Gathering(SKEW_NS)
        self._since_s = 0.0
        self._tables: Windows[Table] = Windows(WINDOW_S)
        self._left_out = Reduction()

    def on_opened(self, opened: Opened, now_s: float) -> None:
        """Take in a message, whichever of its forms it has: packets not met before; the others are counted."""
        entry_ns = entry_ms(opened.entry_id) * MS_NS
        at_ns = opened.header.issued_at_ns if opened.clock_suspect else entry_ns  # which anybody may have put ahead
        match opened.message:
            case Packed() as packed:
                self.on_packed(packed, opened.header, now_s, at_ns)
            case pb.TelemetryFrame() as frame:
                self.on_frame(frame, now_s, at_ns, opened.names)
            case pb.TelemetryPacket() as packet:
                self.on_packet(packet, opened.header, now_s, at_ns, opened.names)
            case pb.ColumnarFrame() as columns:
                self.on_columns(columns, now_s, at_ns)

    def on_frame(self, frame: pb.TelemetryFrame, now_s: float, at_ns: int = FOR_EVER_NS, names: Names = None) -> None:
        """Packets of one source, on the stream since `at_ns` of the epoch; `names` as whoever opened it found them."""
        self._check(frame.region)
        met = self._met(frame.source, frame.incarnation, now_s)
        packets = new_of(frame.packets, met)
        self._repeated(len(frame.packets) - len(packets))
        self._left_out.num_shed += met.drop(frame.shed)
        if packets:
            self._begin(now_s)
            self._left_out.num_skewed += self._packets.add(frame.source, packets, at_ns, names)

    def on_packet(
        self, packet: pb.TelemetryPacket, header: Header, now_s: float, at_ns: int = FOR_EVER_NS, names: Names = None
    ) -> None:
        """A packet under a seal of its own, whose target is the region."""
        if header.target != self.region:
            self._check(header.target)
        source = packet.source_subsystem or header.producer
        is_new = self._met(source, header.incarnation, now_s).admit(packet.sequence)
        if not is_new:
            self._repeated(1)
            return
        self._begin(now_s)
        self._left_out.num_skewed += self._packets.add(source, (packet,), at_ns, names)

    def on_packed(self, packed: Packed, header: Header, now_s: float, at_ns: int = FOR_EVER_NS) -> None:
        """Packets that were not parsed, in a frame or one under a seal of its own."""
        frame, layout = packed.head, packed.layout
        self._check(header.target if frame is None else frame.region)
        if frame is None:
            source = layout.source or header.producer
            met = self._met(source, header.incarnation, now_s)
        else:
            source = layout.source or frame.source
            met = self._met(frame.source, frame.incarnation, now_s)
            self._left_out.num_shed += met.drop(frame.shed)
        num_packets = len(packed.sequences)
        new = admitted(packed.sequences, met)
        if len(new) < num_packets:
            self._repeated(num_packets - len(new))
        if new:
            self._begin(now_s)
            self._packets.pile(source, layout, packed.kept(new), len(new), at_ns)

    def on_columns(self, frame: pb.ColumnarFrame, now_s: float, at_ns: int = FOR_EVER_NS) -> None:
        """Rows of one source; each counts as a packet, and the whole as one input of a window."""
        self._check(frame.region)
        met = self._met(frame.source, frame.incarnation, now_s)
        num_rows = len(frame.timestamp_ns) // UINT.itemsize
        new = met.admit_run(frame.first_sequence, frame.first_sequence + num_rows - 1)
        self._repeated(num_rows - len(new))
        self._left_out.num_shed += met.drop(frame.shed)
        table = table_of(frame, new)
        if new and table.timestamps_ns.max() > at_ns + SKEW_NS:
            ahead = table.timestamps_ns > at_ns + SKEW_NS
            self._left_out.num_skewed += int(ahead.sum())
            table = table._replace(timestamps_ns=np.where(ahead, np.uint64(at_ns), table.timestamps_ns))
        self._tables.add([table], now_s)

    def _check(self, region: str) -> None:
        if region != self.region:
            detail = f"telemetry of region {region!r} on the stream of region {self.region!r}"
            raise RefusedError(pb.ReasonCode.REASON_WRONG_CONTEXT, detail)

    def _met(self, source: str, incarnation: int, now_s: float) -> SequenceWindow:
        name = f"{source}:{incarnation}"
        self._met_s[name] = now_s
        return self.state.window(name)

    def _repeated(self, count: int) -> None:
        self._left_out.num_duplicates += count
        self.num_repeats += count

    def _begin(self, now_s: float) -> None:
        if not self._packets.num_packets:
            self._since_s = now_s

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until `take` is due; None: not before another frame."""
        waits = [self._packets_wait_s(now_s), self._tables.wait_s(now_s)]
        holes = (window.first_hole_s for window in self.state.windows.values())
        waits += [max(0.0, hole_s + GAP_S - now_s) for hole_s in holes if hole_s is not None]
        return min((wait for wait in waits if wait is not None), default=None)

    def _packets_wait_s(self, now_s: float) -> float | None:
        """Full windows go at once, unless their last message does not fit; and not for ever then."""
        num_packets = self._packets.num_packets
        if not num_packets:
            return None
        if num_packets % WINDOW == 0 or num_packets > MOST_HELD * WINDOW:
            return 0.0
        return max(0.0, self._since_s + WINDOW_S - now_s)

    def take(self, now_s: float) -> list[pb.AggregatedTelemetry]:
        """Close everything in hand. What was left out since the last time is told in the last aggregate."""
        for name, window in self.state.windows.items():
            missing = window.declare(now_s, GAP_S)
            if missing:
                self._left_out.num_gaps += missing
                self.state.window(name)
            self._left_out.num_out_of_order += window.num_out_of_order
            self._left_out.num_late += window.num_late
            window.num_out_of_order = window.num_late = 0
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            self._forget(now_s)
            self._forget_loss(now_s)
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

    def _forget_loss(self, now_s: float) -> None:
        if self.state.lost_ms:
            since_s = self._lost_since_s = now_s if self._lost_since_s is None else self._lost_since_s
            if now_s - since_s >= LOST_FOR_S:
                self.state.forget_loss()

    def _close(self) -> list[pb.AggregatedTelemetry]:
        self._left_out.num_skewed += self._packets.unpile()
        reductions = reduce_packets(self._packets.columns.values(), WINDOW)
        self._packets = Gathering(SKEW_NS)
        for window in self._tables.take():
            reductions.append(reduce_tables(window.items))
            reductions[-1].num_messages = window.num_messages
        if not reductions and self._left_out != Reduction():
            reductions.append(Reduction())
        if reductions:
            reductions[-1].merge(self._left_out)
            self._left_out = Reduction()
        return [self._message(reduction) for reduction in reductions]

    def _message(self, reduction: Reduction) -> pb.AggregatedTelemetry:
        partial = reduction.num_packets < WINDOW
        return fitting(reduction.message(self.region, self.state.next_sequence(), partial=partial))


def new_of(packets: Sequence[pb.TelemetryPacket], met: SequenceWindow) -> Sequence[pb.TelemetryPacket]:
    """Those not met before, of packets whose sequences go up."""
    if packets and packets[-1].sequence - packets[0].sequence == len(packets) - 1:
        numbers = met.admit_run(packets[0].sequence, packets[-1].sequence)
        if len(numbers) == len(packets):
            return packets
        new = frozenset(numbers)
        return [packet for packet in packets if packet.sequence in new]
    return [packet for packet in packets if met.admit(packet.sequence)]


def admitted(sequences: Sequence[int], met: SequenceWindow) -> Sequence[int]:
    """Those not met before, of numbers that go up."""
    if sequences and sequences[-1] - sequences[0] == len(sequences) - 1:
        return met.admit_run(sequences[0], sequences[-1])
    return [sequence for sequence in sequences if met.admit(sequence)]


def source_of(name: str) -> str:
    """The source in the name of a window, its incarnation left out."""
    return name.rpartition(":")[0]
