"""Rows of a trainer as telemetry: frames of packets, or tables where rows have nothing but numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from struct import pack
from typing import Literal, TypeAlias

from esper.leyline import contracts as pb
from esper.leyline.envelope import BODY_CAP_BYTES
from esper.leyline.levels import INFO, highest

PACKETS_PER_FRAME = 32
FRAME_BYTES = BODY_CAP_BYTES // 2
"""Packets of so many bytes are a frame though they are fewer; the last one may come over it."""
Format: TypeAlias = Literal["frames", "columnar"]


@dataclass(frozen=True)
class Origin:
    """Whose rows these are."""

    source: str
    region: str
    form: Format = "frames"


def telemetry(rows: pb.TelemetryRows, origin: Origin) -> Iterator[tuple[pb.TelemetryFrame | pb.ColumnarFrame, int]]:
    """Yield the rows as messages, each with the highest sequence in it.

    `columnar`: rows without events as tables; those with events as frames, which alone have room for them.
    """
    if origin.form == "frames":
        yield from _framed(rows, origin, range(len(rows.timestamp_ns)))
        return
    eventful = {event.row for event in rows.events}
    for key, run in groupby(range(len(rows.timestamp_ns)), key=lambda row: (row in eventful, level_of(rows, row, ()))):
        indices = list(run)
        if key[0]:
            yield from _framed(rows, origin, indices)
        else:
            yield _table(rows, origin, indices[0], indices[-1] + 1), rows.first_sequence + indices[-1]


def level_of(rows: pb.TelemetryRows, row: int, events: Iterable[pb.RowEvent]) -> pb.TelemetryLevel:
    """Of one row: its own, or that of an event which tells more."""
    own = rows.level[row] if rows.level else INFO
    return highest([own, *(event.level for event in events)])


def _framed(rows: pb.TelemetryRows, origin: Origin, indices: Sequence[int]) -> Iterator[tuple[pb.TelemetryFrame, int]]:
    """Frames of up to 32 packets, one packet a row."""
    for inside in _split(list(_packets(rows, indices)), is_light=not rows.events):
        frame = pb.TelemetryFrame(
            version=1,
            source=origin.source,
            incarnation=rows.incarnation,
            region=origin.region,
            packets=inside,
            shed=rows.shed,
        )
        yield frame, inside[-1].sequence


def _split(packets: list[pb.TelemetryPacket], *, is_light: bool) -> Iterator[list[pb.TelemetryPacket]]:
    """By their number; by their size too where they tell of events, whose texts may be long."""
    inside: list[pb.TelemetryPacket] = []
    size = 0
    for packet in packets:
        inside.append(packet)
        size += 0 if is_light else packet.ByteSize()
        if len(inside) == PACKETS_PER_FRAME or size >= FRAME_BYTES:
            yield inside
            inside, size = [], 0
    if inside:
        yield inside


def _table(rows: pb.TelemetryRows, origin: Origin, first: int, end: int) -> pb.ColumnarFrame:
    """Its columns one after the other. Not by numpy, whose import is a fifth of what a runtime takes to begin."""
    num, width = end - first, len(rows.names)
    cells = rows.values[first * width : end * width]
    columns = chain.from_iterable(cells[column::width] for column in range(width))
    return pb.ColumnarFrame(
        version=1,
        source=origin.source,
        incarnation=rows.incarnation,
        first_sequence=rows.first_sequence + first,
        schema=pb.MetricSchema(version=1, names=rows.names),
        region=origin.region,
        level=level_of(rows, first, ()),
        shed=rows.shed,
        timestamp_ns=pack(f"<{num}Q", *rows.timestamp_ns[first:end]),
        global_step=pack(f"<{num}Q", *rows.global_step[first:end]),
        values=pack(f"<{num * width}d", *columns),
    )


def signals(rows: pb.TelemetryRows, origin: Origin) -> Iterator[pb.EmergencySignal]:
    """Yield one signal for each critical event, naming the packet that carries it."""
    for event in rows.events:
        if event.level == pb.TelemetryLevel.TELEMETRY_CRITICAL:
            yield pb.EmergencySignal(
                version=1,
                level=pb.EmergencyLevel.EMERGENCY_ELEVATED,
                reason=event.description,
                origin=origin.source,
                triggered_at_ns=rows.timestamp_ns[event.row],
                global_step=rows.global_step[event.row],
                packet_sequence=rows.first_sequence + event.row,
                attributes=event.attributes,
            )


def _packets(rows: pb.TelemetryRows, indices: Sequence[int]) -> Iterator[pb.TelemetryPacket]:
    events: dict[int, list[pb.RowEvent]] = {}
    for event in rows.events:
        events.setdefault(event.row, []).append(event)
    width, values = len(rows.names), list(rows.values)
    for index in indices:
        cells = zip(rows.names, values[index * width : (index + 1) * width], strict=True)
        own = events.get(index, [])
        yield pb.TelemetryPacket(
            version=1,
            timestamp_ns=rows.timestamp_ns[index],
            level=level_of(rows, index, own),
            sequence=rows.first_sequence + index,
            global_step=rows.global_step[index],
            values=dict(cells),
            events=[_event(event, rows.first_sequence + index) for event in own],
        )


def _event(event: pb.RowEvent, sequence: int) -> pb.TelemetryEvent:
    return pb.TelemetryEvent(
        event_id=str(sequence), description=event.description, level=event.level, attributes=event.attributes
    )
