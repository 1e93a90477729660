"""Reduces columnar frames: packed values, taken by numpy as they lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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
    sequences: NDArray[np.uint64]
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
        return Origin(int(self.timestamps_ns[row]), self.source, int(self.sequences[row]))


def table_of(frame: pb.ColumnarFrame, new: Sequence[int]) -> Table:
    """The rows with these sequences, which are some or all of the frame's in their order."""
    num_rows = len(frame.timestamp_ns) // UINT.itemsize
    sequences = np.array(new, dtype=UINT)
    timestamps_ns, steps = np.frombuffer(frame.timestamp_ns, UINT), np.frombuffer(frame.global_step, UINT)
    values = np.frombuffer(frame.values, DOUBLE).reshape(len(frame.schema.names), num_rows)
    if len(new) != num_rows:
        kept = (sequences - np.uint64(frame.first_sequence)).astype(np.intp)
        timestamps_ns, steps, values = timestamps_ns[kept], steps[kept], values[:, kept]
    return Table(frame.source, frame.level, tuple(frame.schema.names), sequences, timestamps_ns, steps, values)


def reduce_tables(tables: Sequence[Table]) -> Reduction:
    """The figures over all rows. Finite tables with the same columns go through numpy as one."""
    reduction, alike = Reduction(), dict[tuple[str, ...], list[Table]]()
    for table in tables:
        if not len(table.sequences):
            continue
        if np.isfinite(table.values).all():
            alike.setdefault(table.names, []).append(table)
        else:
            reduction.merge(_outlined([table], _reduce_rows(table)))
    for group in alike.values():
        reduction.merge(_outlined(group, _reduce_finite(group)))
    return reduction


def _outlined(tables: Sequence[Table], statistics: Sequence[Statistics]) -> Reduction:
    levels: Counter[str] = Counter()
    for table in tables:
        levels[LEVELS.get(table.level, "UNKNOWN")] += len(table.sequences)
    return Reduction(
        num_packets=levels.total(),
        first_timestamp_ns=int(min(table.timestamps_ns.min() for table in tables)),
        last_timestamp_ns=int(max(table.timestamps_ns.max() for table in tables)),
        max_step=int(max(table.steps.max() for table in tables)),
        metrics=dict(zip(tables[0].names, statistics, strict=True)),
        levels=levels,
    )


def _reduce_finite(tables: Sequence[Table]) -> list[Statistics]:
    starts = np.cumsum([0, *(len(table.sequences) for table in tables)])
    newest = [(int(start) + place, origin) for start, (place, origin) in zip(starts, _newest(tables), strict=False)]
    values = np.concatenate(
        [table.values for table in tables], axis=1
    )  # also of one: the sketch takes no view of bytes
    [statistics] = of_stack(values[np.newaxis], [max(newest, key=lambda each: each[1])])
    return statistics


def _newest(tables: Sequence[Table]) -> list[tuple[int, Origin]]:
    return [table.newest for table in tables]


def _reduce_rows(table: Table) -> list[Statistics]:
    """Column by column, values that are not finite left out of each."""
    order = np.argsort(table.timestamps_ns, kind="stable")
    origins = [table.origin(row) for row in order.tolist()]
    return [of_values(column[order], origins) for column in table.values]
