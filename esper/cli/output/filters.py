"""Which messages of a stream a person wants to see, and what of each."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from google.protobuf.message import Message

from esper.errors import SettingError
from esper.leyline import contracts as pb
from esper.leyline.levels import INFO, rank
from esper.leyline.seal import Opened

LEVELS: Mapping[str, int] = {
    name: getattr(pb.TelemetryLevel, f"TELEMETRY_{name.upper()}")
    for name in ("debug", "info", "warning", "error", "critical")
}
_BAD = (pb.ReceiptStatus.RECEIPT_REJECTED, pb.ReceiptStatus.RECEIPT_FAILED)

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Filter:
    """Globs of sources and metrics, and the lowest level; empty: all. What it leaves is a copy."""

    source: str = ""
    level: str = ""
    metric: str = ""

    def __post_init__(self) -> None:
        if self.level and self.level not in LEVELS:
            raise SettingError("level", self.level, f"one of {', '.join(LEVELS)}")

    def left(self, opened: Opened) -> Opened | None:
        """The message with only what is wanted of it; None: nothing is."""
        message = opened.message
        if not self._is_wanted(opened.header.producer, *_sources(message)):
            return None
        found = self._narrowed(message)
        return None if found is None else opened._replace(message=found)

    def _narrowed(self, message: Message) -> Message | None:
        match message:
            case pb.TelemetryFrame():
                return self._frame(message)
            case pb.TelemetryPacket():
                return self._packet(message)
            case pb.ColumnarFrame():
                return self._table(message)
            case pb.AggregatedTelemetry():
                return self._aggregate(message)
            case pb.SystemStatePacket() if self._is_high(INFO):
                state = _copy(message)
                return state if self._thin(state.training_metrics) else None
            case pb.FieldReport() if self._is_high(INFO):
                report = _copy(message)
                return report if self._thin(report.metrics) else None
            case pb.CommandReceipt():
                level = LEVELS["warning"] if message.status in _BAD else INFO
                return message if self._is_high(level) and not self.metric else None
            case _:
                return message if self._is_high(INFO) and not self.metric else None

    def _frame(self, message: pb.TelemetryFrame) -> pb.TelemetryFrame | None:
        frame = _copy(message)
        del frame.packets[:]
        frame.packets.extend(left for each in message.packets if (left := self._packet(each)) is not None)
        return frame if frame.packets else None

    def _packet(self, message: pb.TelemetryPacket) -> pb.TelemetryPacket | None:
        if not self._is_high(message.level):
            return None
        packet = _copy(message)
        del packet.metrics[:]
        packet.metrics.extend(point for point in message.metrics if self._measures(point.name))
        return packet if self._thin(packet.values) or packet.metrics else None

    def _table(self, message: pb.ColumnarFrame) -> pb.ColumnarFrame | None:
        """Only the columns that are wanted; cells are eight bytes, one column after the other."""
        places = [at for at, name in enumerate(message.schema.names) if self._measures(name)]
        if not self._is_high(message.level) or (self.metric and not places):
            return None
        column, table = len(message.timestamp_ns), _copy(message)
        table.schema.names[:] = [message.schema.names[at] for at in places]
        table.schema.units[:] = [message.schema.units[at] for at in places] if message.schema.units else []
        table.values = b"".join(message.values[at * column : (at + 1) * column] for at in places)
        return table

    def _aggregate(self, message: pb.AggregatedTelemetry) -> pb.AggregatedTelemetry | None:
        levels = (LEVELS.get(name.lower(), 0) for name, number in message.level_counts.items() if number)
        if self.level and not any(map(self._is_high, levels)):
            return None
        aggregate = _copy(message)
        del aggregate.events[:]
        aggregate.events.extend(event for event in message.events if self._is_high(event.level))
        return aggregate if self._thin(aggregate.metrics) else None

    def _thin(self, metrics: MutableMapping[str, Any]) -> bool:
        """Take away those that are not wanted; whether that leaves anything to show."""
        for name in [name for name in metrics if not self._measures(name)]:
            del metrics[name]
        return bool(metrics) or not self.metric

    def _measures(self, name: str) -> bool:
        return not self.metric or fnmatchcase(name, self.metric)

    def _is_high(self, level: int) -> bool:
        return not self.level or rank(level) >= rank(LEVELS[self.level])

    def _is_wanted(self, *sources: str) -> bool:
        return not self.source or any(fnmatchcase(each, self.source) for each in sources)


def _sources(message: Message) -> list[str]:
    """Who speaks, beside whoever sealed it."""
    fields = ("source", "worker", "region", "source_subsystem", "seed_id")
    return [str(getattr(message, field)) for field in fields if getattr(message, field, "")]


def _copy(message: M) -> M:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
