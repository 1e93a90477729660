"""The telemetry that every arm is given: the same values in three forms."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from bus_arms.traffic import RUN, kept, sealer
from esper.bus import names
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer

REGION = "north"
NAMES = ("loss", "lr", "acc", "gradnorm", "step_ms")
TELEMETRY, REGIONAL, WINDOWS = (names.region_key(RUN, REGION, name) for name in ("telemetry", "regional", "windows"))
GLOBAL, TOTALS, DEAD, EMERGENCY = (names.key(RUN, name) for name in ("global", "totals", "dead", "emergency"))
IN_A_MESSAGE = {"packets": 1, "frames": 32, "columns": 256}


def values_of(num: int) -> NDArray[np.float64]:
    """(rows, metrics)"""
    return np.random.default_rng(0).lognormal(size=(num, len(NAMES)))


def packet(sequence: int, row: list[float], at_ns: int) -> pb.TelemetryPacket:
    """The standard shape: five metrics of one step."""
    return pb.TelemetryPacket(
        version=1,
        timestamp_ns=at_ns,
        level=pb.TelemetryLevel.TELEMETRY_INFO,
        sequence=sequence,
        global_step=40_000 + sequence,
        values=dict(zip(NAMES, row, strict=True)),
    )


def messages(form: str, values: NDArray[np.float64], incarnation: int, first: int = 1) -> Iterator[Message]:
    """The rows, numbered from `first`, as messages of this form."""
    size, at_ns = IN_A_MESSAGE[form], time.time_ns()
    for start in range(0, len(values), size):
        rows = values[start : start + size]
        if form == "columns":
            yield columns(rows, incarnation, first + start, at_ns)
            continue
        packets = [packet(first + start + at, row, at_ns) for at, row in enumerate(rows.tolist())]
        yield packets[0] if form == "packets" else framed(packets, incarnation)


def framed(packets: list[pb.TelemetryPacket], incarnation: int) -> pb.TelemetryFrame:
    return pb.TelemetryFrame(version=1, source="worker-0", incarnation=incarnation, region=REGION, packets=packets)


def columns(rows: NDArray[np.float64], incarnation: int, first: int, at_ns: int) -> pb.ColumnarFrame:
    steps = np.arange(first, first + len(rows), dtype="<u8")
    return pb.ColumnarFrame(
        version=1,
        source="worker-0",
        incarnation=incarnation,
        first_sequence=first,
        schema=pb.MetricSchema(version=1, names=NAMES),
        region=REGION,
        level=pb.TelemetryLevel.TELEMETRY_INFO,
        timestamp_ns=(steps + at_ns).tobytes(),
        global_step=steps.tobytes(),
        values=rows.T.astype("<f8").tobytes(),
    )


def worker(directory: str) -> Sealer:
    return sealer(directory, Role.WORKER)


def sealed(directory: str, form: str, num: int) -> list[bytes]:
    """`num` rows, fresh enough to be put into a stream now."""
    by, target = worker(directory), REGION if form == "packets" else "*"  # a packet's own seal names its region
    return kept(form, num, lambda: [by.seal(each, target=target) for each in messages(form, values_of(num), 7)])
