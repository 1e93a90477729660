"""Reduces a window of packets: columns of values, reduced a table at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from esper.leyline import contracts as pb
from esper.narset.reduction import MAX_EVENTS, MAX_METRICS, Reduction
from esper.narset.statistics import Origin, Statistics, of_table, of_values

NAME_BYTES = 255  # of a metric, on the wire


class Sighting(NamedTuple):
    """A packet and where it comes from; sorts by origin."""

    origin: Origin
    packet: pb.TelemetryPacket


Columns = dict[str, tuple[list[float], list[Origin]]]


def reduce_packets(sightings: Sequence[Sighting]) -> Reduction:
    """The figures over these packets."""
    ordered = sorted(sightings, key=lambda sighting: sighting.origin)
    if not ordered:
        return Reduction()
    packets = [sighting.packet for sighting in ordered]
    return Reduction(
        num_packets=len(packets),
        first_timestamp_ns=ordered[0].origin.timestamp_ns,
        last_timestamp_ns=ordered[-1].origin.timestamp_ns,
        max_step=max(packet.global_step for packet in packets),
        metrics=reduce_columns(columns_of(ordered)),
        levels=Counter(_LEVELS.get(packet.level, "UNKNOWN") for packet in packets),
        events=[event for packet in packets for event in packet.events][-MAX_EVENTS:],
    )


def columns_of(ordered: Sequence[Sighting]) -> Columns:
    """Each metric's values beside their origins, oldest first."""
    columns: Columns = {}
    for origin, packet in ordered:
        for name, value in values_of(packet) if packet.metrics else packet.values.items():
            column = columns.get(name)
            if column is None:
                if len(columns) == MAX_METRICS:
                    continue
                columns[name] = column = ([], [])
            column[0].append(value)
            column[1].append(origin)
    return columns


def values_of(packet: pb.TelemetryPacket) -> Iterator[tuple[str, float]]:
    """Everything measured in a packet; a point with labels is a metric of its own, `name{label=value,...}`."""
    yield from packet.values.items()
    for point in packet.metrics:
        yield name_of(point), point.value


def name_of(point: pb.MetricPoint) -> str:
    """The metric's name with its labels, as far as the wire has room for them: what is too long is told by its hash."""
    if not point.labels:
        return point.name
    labels = ",".join(f"{label}={text}" for label, text in sorted(point.labels.items()))
    name = f"{point.name}{{{labels}}}"
    if len(name.encode()) <= NAME_BYTES:
        return name
    digest = sha256(name.encode()).hexdigest()[:16]
    return f"{point.name.encode()[: NAME_BYTES - 18].decode(errors='ignore')}{{{digest}}}"


def reduce_columns(columns: Columns) -> dict[str, Statistics]:
    """The statistics of each column. Columns present in all packets go through numpy as one table."""
    lengths: dict[int, list[str]] = {}
    for name, (values, _) in columns.items():
        lengths.setdefault(len(values), []).append(name)
    found: dict[str, Statistics] = {}
    for names in lengths.values():
        found.update(_reduce_equal(columns, names))
    return found


def _reduce_equal(columns: Columns, names: Sequence[str]) -> Mapping[str, Statistics]:
    origins = columns[names[0]][1]
    if all(columns[name][1] == origins for name in names):
        table = of_table(np.array([columns[name][0] for name in names]), origins)
        return dict(zip(names, table, strict=True))
    return {name: of_values(np.array(columns[name][0]), columns[name][1]) for name in names}


_LEVELS: Mapping[int, str] = {number: name.removeprefix("TELEMETRY_") for name, number in pb.TelemetryLevel.items()}
