"""Runs rows one after the other and hands on each figure as it is made."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator

from esper.bench.blame import blaming
from esper.bench.comparing import compared
from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.machine import this_machine
from esper.bench.results import Results
from esper.bench.row import Comparison, Row
from esper.errors import EsperError


def run(rows: Iterable[Row], effort: Effort, on_figure: Callable[[Figure], object] = id) -> Results:
    """Measure these rows; `on_figure` is told each figure as soon as its row has it.

    A row whose arm fails, or whose arms disagree, is one of `failures`, and the rows behind it are still measured.
    """
    started_s, load = time.time(), os.getloadavg()[0]
    figures, failures = list[Figure](), list[EsperError]()
    for row in rows:
        try:
            for figure in measured(row, effort):
                figures.append(figure)
                on_figure(figure)
        except EsperError as error:
            failures.append(error)
    return Results(tuple(figures), tuple(failures), (), this_machine(load), effort, started_s, time.time())


def measured(row: Row, effort: Effort) -> Iterator[Figure]:
    """Raises ArmFailedError where an arm fails, DisagreementError where two come to different answers."""
    if isinstance(row, Comparison):
        yield from compared(row, effort)
        return
    with blaming(row.name, "the measurement"):
        yield from row.measure(effort)
