"""Rows of a trainer as telemetry frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from esper.leyline import contracts as pb

PACKETS_PER_FRAME = 32


@dataclass(frozen=True)
class Origin:
    """Whose rows these are."""

    source: str
    region: str


def frames(rows: pb.TelemetryRows, origin: Origin) -> Iterator[pb.TelemetryFrame]:
    """Yield the rows as frames of up to 32 packets, one packet a row."""
    packets = list(_packets(rows))
    for start in range(0, len(packets), PACKETS_PER_FRAME):
        yield pb.TelemetryFrame(
            version=1,
            source=origin.source,
            incarnation=rows.incarnation,
            region=origin.region,
            packets=packets[start : start + PACKETS_PER_FRAME],
            shed=rows.shed,
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


def _packets(rows: pb.TelemetryRows) -> Iterator[pb.TelemetryPacket]:
    events: dict[int, list[pb.RowEvent]] = {}
    for event in rows.events:
        events.setdefault(event.row, []).append(event)
    width, values = len(rows.names), list(rows.values)
    for index, (timestamp_ns, step) in enumerate(zip(rows.timestamp_ns, rows.global_step, strict=True)):
        cells = zip(rows.names, values[index * width : (index + 1) * width], strict=True)
        own = events.get(index, [])
        yield pb.TelemetryPacket(
            version=1,
            timestamp_ns=timestamp_ns,
            level=max((event.level for event in own), default=pb.TelemetryLevel.TELEMETRY_INFO),
            sequence=rows.first_sequence + index,
            global_step=step,
            values=dict(cells),
            events=[_event(event, rows.first_sequence + index) for event in own],
        )


def _event(event: pb.RowEvent, sequence: int) -> pb.TelemetryEvent:
    return pb.TelemetryEvent(
        event_id=str(sequence), description=event.description, level=event.level, attributes=event.attributes
    )
