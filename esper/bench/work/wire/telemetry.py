"""A training step's telemetry from the loop to its seal, and 32 packets folded into one aggregate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import numpy as np
from numpy.typing import NDArray

from esper.bench.arm import Ready
from esper.bench.work.wire.messages import METRICS
from esper.bench.work.wire.sealing import Wire
from esper.leyline import contracts as pb
from esper.leyline.frames import FrameDecoder, encode
from esper.narset.regional import Regional
from esper.runtime.beside.packets import Origin, telemetry
from esper.tolaria.rows.rows import Rows

REGION = "eu"
NAMES = sorted(METRICS)
STATISTICS = ("count", "sum", "mean", "m2", "min", "max")


class Loop:
    """A training loop's rows: handed over as one message after `num` steps, and taken as stored."""

    def __init__(self, num: int) -> None:
        self.rows, self.num = Rows(incarnation=7), num
        self._steps = count(1)

    def generate(self) -> bytes:
        """What the trainer does: keep a row a step, then hand them over as one frame of bytes."""
        for _ in range(self.num):
            self.rows.add(next(self._steps), time.time_ns(), dict(METRICS))
        return encode(pb.ToRuntime(rows=self.table()))

    def table(self) -> pb.TelemetryRows:
        table = self.rows.table()
        if table is None:
            raise RuntimeError("the rows gave no table")
        self.rows.stored(table.first_sequence + len(table.timestamp_ns) - 1)
        return table

    def values(self) -> list[float]:
        """Of the rows in one more message, step by step, by name."""
        (message,) = FrameDecoder(pb.ToRuntime).feed(self.generate())
        return list(message.rows.values)


def kept_bare(num: int) -> Ready:
    """The same numbers into an array, and the array into bytes."""
    values = np.array([METRICS[name] for name in NAMES])

    def call() -> bytes:
        table = np.empty((num, len(NAMES)))
        for at in range(num):
            table[at] = values
        return table.tobytes()

    return Ready(call, answer=lambda: np.frombuffer(call()).tolist())


def generated(num: int) -> Ready:
    loop = Loop(num)
    return Ready(loop.generate, answer=loop.values)


def sealed(num: int) -> Ready:
    """What the runtime beside the trainer does with the same rows: packets in frames, each under one seal."""
    loop, wire = Loop(num), Wire("frame of 32 packets")
    for _ in range(num):
        loop.rows.add(1, time.time_ns(), dict(METRICS))
    table = loop.table()
    origin = Origin("worker-0", REGION)

    def call() -> list[bytes]:
        return [wire.sealer.seal(frame) for frame, _ in telemetry(table, origin)]

    def answer() -> list[float]:
        opened = [wire.opened(each) for each in call()]
        packets = [packet for frame in opened if isinstance(frame, pb.TelemetryFrame) for packet in frame.packets]
        return [packet.values[name] for packet in packets for name in NAMES]

    return Ready(call, answer=answer)


def drawn(num: int) -> NDArray[np.float64]:
    """(rows, metrics)"""
    return np.random.default_rng(0).lognormal(size=(num, len(NAMES)))


def numpy_alone(num: int) -> Ready:
    """Sum, mean, M2, minimum and maximum of the same values, all at once."""
    values = np.ascontiguousarray(drawn(num).T)

    def call() -> list[NDArray[np.float64]]:
        sums = values.sum(axis=1)
        means = sums / num
        m2 = np.square(values - means[:, np.newaxis]).sum(axis=1)
        return [sums, means, m2, values.min(axis=1), values.max(axis=1)]

    def answer() -> list[list[float]]:
        return [[float(num), *(float(column[at]) for column in call())] for at in range(len(NAMES))]

    return Ready(call, answer=answer)


class Folding:
    """A tier 1 that is given one message after the other, each with packets not met before."""

    def __init__(self, num: int, columnar: bool) -> None:
        self.tier, self.values, self.columnar = Regional(REGION), drawn(num), columnar
        self._message: pb.TelemetryFrame | pb.ColumnarFrame
        self._sequence, self._now_s = 0, 0.0
        self.prepare()

    def prepare(self) -> None:
        self._message = self._next()

    def fold(self) -> pb.AggregatedTelemetry:
        """The message in, its aggregate out."""
        self._now_s += 1e-3
        if isinstance(self._message, pb.ColumnarFrame):
            self.tier.on_columns(self._message, self._now_s)
        else:
            self.tier.on_frame(self._message, self._now_s)
        [aggregate] = self.tier.take(self._now_s)
        return aggregate

    def answer(self) -> list[list[float]]:
        self.prepare()
        metrics = self.fold().metrics
        return [[float(getattr(metrics[name], each)) for each in STATISTICS] for name in NAMES]

    def _next(self) -> pb.TelemetryFrame | pb.ColumnarFrame:
        first, self._sequence = self._sequence + 1, self._sequence + len(self.values)
        return self._table(first) if self.columnar else self._frame(first)

    def _frame(self, first: int) -> pb.TelemetryFrame:
        return pb.TelemetryFrame(
            version=1, source="worker-0", incarnation=7, region=REGION, packets=self._packets(first)
        )

    def _packets(self, first: int) -> Iterator[pb.TelemetryPacket]:
        for at, row in enumerate(self.values.tolist()):
            values = dict(zip(NAMES, row, strict=True))
            yield pb.TelemetryPacket(version=1, sequence=first + at, timestamp_ns=first + at, values=values)

    def _table(self, first: int) -> pb.ColumnarFrame:
        steps = np.arange(first, first + len(self.values), dtype="<u8")
        return pb.ColumnarFrame(
            version=1,
            source="worker-0",
            incarnation=7,
            first_sequence=first,
            schema=pb.MetricSchema(version=1, names=NAMES),
            region=REGION,
            timestamp_ns=steps.tobytes(),
            global_step=steps.tobytes(),
            values=self.values.T.astype("<f8").tobytes(),
        )


def folded(num: int, columnar: bool) -> Ready:
    folding = Folding(num, columnar)
    return Ready(folding.fold, answer=folding.answer, before=folding.prepare)
