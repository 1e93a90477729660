"""Runs rows one after the other and hands on each figure as it is made."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from esper.bench.blame import blaming
from esper.bench.comparing import compared
from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.machine import this_machine
from esper.bench.regressions import judged
from esper.bench.results import Results
from esper.bench.row import Comparison, Row
from esper.bench.store import Store
from esper.errors import EsperError


def run(
    rows: Iterable[Row], effort: Effort, on_figure: Callable[[Figure], object] = id, store: Store | None = None
) -> Results:
    """Measure these rows; `on_figure` is told each figure as soon as its row has it.

    A row whose arm fails, or whose arms disagree, is one of `failures`, and the rows behind it are still measured. With
    a store the run is compared with the earlier ones of this machine, which is where alarms come from, and remembered.
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
    results = Results(tuple(figures), tuple(failures), (), this_machine(load), effort, started_s, time.time())
    return results if store is None else remembered(results, store)


def remembered(results: Results, store: Store) -> Results:
    """With its alarms, and kept for the runs to come."""
    key = results.machine.key
    alarms, session = judged(results, store.sessions(key))
    store.add(key, session)
    return replace(results, alarms=alarms)


def measured(row: Row, effort: Effort) -> Iterator[Figure]:
    """Raises ArmFailedError where an arm fails, DisagreementError where two come to different answers."""
    if isinstance(row, Comparison):
        yield from compared(row, effort)
        return
    with blaming(row.name, "the measurement"):
        yield from row.measure(effort)
