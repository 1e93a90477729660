"""Reduces columnar frames: packed values, taken by numpy as they lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from esper.leyline import contracts as pb
from esper.narset.reduce import LEVELS
from esper.narset.reduction import Reduction
from esper.narset.statistics import Origin, Statistics, of_stack, of_values

UINT, DOUBLE = np.dtype("<u8"), np.dtype("<f8")


class Table(NamedTuple):
    """Rows of one source that were not met before. `values` is (columns, rows)."""

    source: str
    level: int
    names: tuple[str, ...]
    sequences: Sequence[int]
    timestamps_ns: NDArray[np.uint64]
    steps: NDArray[np.uint64]
    values: NDArray[np.float64]

    @property
    def newest(self) -> tuple[int, Origin]:
        """The place of the newest row, which of equally new ones is the last, and where it comes from."""
        place = len(self.timestamps_ns) - 1 - int(self.timestamps_ns[::-1].argmax())
        return place, self.origin(place)

    def origin(self, row: int) -> Origin:
        """Where a row comes from."""
        return Origin(int(self.timestamps_ns[row]), self.source, self.sequences[row])


def table_of(frame: pb.ColumnarFrame, new: Sequence[int]) -> Table:
    """The rows with these sequences, which are some or all of the frame's in their order."""
    names = tuple(frame.schema.names)
    timestamps_ns, steps = np.frombuffer(frame.timestamp_ns, UINT), np.frombuffer(frame.global_step, UINT)
    values = np.frombuffer(frame.values, DOUBLE).reshape(len(names), len(timestamps_ns))
    if len(new) != len(timestamps_ns):
        first = frame.first_sequence
        kept = np.array([sequence - first for sequence in new], dtype=np.intp)
        timestamps_ns, steps, values = timestamps_ns[kept], steps[kept], values[:, kept]
    return Table(frame.source, frame.level, names, new, timestamps_ns, steps, values)


def reduce_tables(tables: Sequence[Table]) -> Reduction:
    """The figures over all rows. Finite tables with the same columns go through numpy as one."""
    reduction, alike = Reduction(), dict[tuple[str, ...], list[Table]]()
    for table in tables:
        if table.sequences:
            alike.setdefault(table.names, []).append(table)
    for group in alike.values():
        for part in _reduced(group):
            reduction.merge(part)
    return reduction


def _reduced(tables: Sequence[Table]) -> Iterator[Reduction]:
    """Of tables with the same columns: all that are finite together, the others each alone."""
    values = np.concatenate([table.values for table in tables], axis=1)
    if np.isfinite(values).all():
        yield _outlined(tables, _reduce_finite(tables, values))
        return
    finite = list[Table]()
    for table in tables:
        if np.isfinite(table.values).all():
            finite.append(table)
        else:
            yield _outlined([table], _reduce_rows(table))
    if finite:
        yield from _reduced(finite)


def _outlined(tables: Sequence[Table], statistics: Sequence[Statistics]) -> Reduction:
    levels: Counter[str] = Counter()
    for table in tables:
        levels[LEVELS.get(table.level, "UNKNOWN")] += len(table.sequences)
    timestamps_ns = np.concatenate([table.timestamps_ns for table in tables])
    return Reduction(
        num_packets=len(timestamps_ns),
        first_timestamp_ns=int(timestamps_ns.min()),
        last_timestamp_ns=int(timestamps_ns.max()),
        max_step=int(np.concatenate([table.steps for table in tables]).max()),
        metrics=dict(zip(tables[0].names, statistics, strict=True)),
        levels=levels,
    )


def _reduce_finite(tables: Sequence[Table], values: NDArray[np.float64]) -> list[Statistics]:
    starts = accumulate((len(table.sequences) for table in tables), initial=0)
    newest = [
        (start + place, origin)
        for start, (place, origin) in zip(starts, (each.newest for each in tables), strict=False)
    ]
    [statistics] = of_stack(values[np.newaxis], [max(newest, key=itemgetter(1))])
    return statistics


def _reduce_rows(table: Table) -> list[Statistics]:
    """Column by column, values that are not finite left out of each."""
    order = np.argsort(table.timestamps_ns, kind="stable")
    origins = [table.origin(row) for row in order.tolist()]
    return [of_values(column[order], origins) for column in table.values]
