"""A short soak: for hours of it there is `esper bench soak`."""

from __future__ import annotations

from collections.abc import Iterator

from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.row import Measurement, Row

SHARE = 0.6  # of an effort's seconds: loading and the first seed's life take the rest


def measure(effort: Effort) -> Iterator[Figure]:
    from esper.bench.soak.stability import soak

    found = soak(effort.seconds * SHARE / 3600)
    if found.interrupted:  # it would else be taken for done, and the rows behind it begin
        raise KeyboardInterrupt
    return found.figures()


ROWS: tuple[Row, ...] = (Measurement("stability", "stability", measure),)
