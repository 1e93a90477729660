"""How much each level of telemetry tells: what is shed first, and what a packet with several events is."""

from __future__ import annotations

from collections.abc import Iterable

from esper.leyline import contracts as pb

INFO = pb.TelemetryLevel.TELEMETRY_INFO
CRITICAL = pb.TelemetryLevel.TELEMETRY_CRITICAL

_BY_RANK = (
    pb.TelemetryLevel.TELEMETRY_UNKNOWN,
    pb.TelemetryLevel.TELEMETRY_DEBUG,
    INFO,
    pb.TelemetryLevel.TELEMETRY_WARNING,
    pb.TelemetryLevel.TELEMETRY_ERROR,
    CRITICAL,
)
_RANKS = {int(level): place for place, level in enumerate(_BY_RANK)}


def rank(level: int) -> int:
    """A place in the order from UNKNOWN by DEBUG to CRITICAL; KeyError: no such level."""
    return _RANKS[level]


def highest(levels: Iterable[int]) -> pb.TelemetryLevel:
    """The one that tells most; INFO of none."""
    return _BY_RANK[max((rank(level) for level in levels), default=rank(INFO))]
