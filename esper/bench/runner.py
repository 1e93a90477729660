"""Runs rows one after the other and hands on each figure as it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.history.regressions import judged
from esper.bench.history.store import Store
from esper.bench.results import Alarm, Results
from esper.bench.row import Comparison, Row
from esper.bench.timing.blame import blaming
from esper.bench.timing.comparing import compared
from esper.bench.timing.logs import logs_on_stderr
from esper.bench.underway import Underway
from esper.errors import EsperError


def run(
    rows: Iterable[Row], effort: Effort, on_figure: Callable[[Figure], object] = id, store: Store | None = None
) -> Results:
    """Measure these rows; `on_figure` is told each figure as soon as its row has it.

    A row whose arm fails, or whose arms disagree, is one of `failures`, and the rows behind it are still measured. With
    a store the run is compared with the earlier ones of this machine, which is where alarms come from, and remembered.
    """
    return carried_out(rows, Underway(effort, on_figure), store)


def carried_out(rows: Iterable[Row], underway: Underway, store: Store | None = None) -> Results:
    """As `run`, for a caller who keeps what there is so far, as of a run that is interrupted. A row that an earlier
    sitting has done is not done again."""
    with logs_on_stderr():
        for row in rows:
            if row.name not in underway.done:
                underway.take(row.name, measured(row, underway.effort))
    results = underway.results()
    return results if store is None else remembered(results, store)


def remembered(results: Results, store: Store) -> Results:
    """With its alarms, and kept for the runs to come. A store that can't be read or written to is one of the failures,
    so that nothing that was measured is lost with it."""
    key, alarms = results.machine.key, tuple[Alarm, ...]()
    began = {sitting.started_s for sitting in results.sittings}
    try:
        earlier = store.sessions(key)
        known = {session.at_s for session in earlier} & began  # a sitting that left a row to be measured again
        alarms, sessions = judged(results, [session for session in earlier if session.at_s not in known])
        store.add(key, *(session for session in sessions if session.at_s not in known))
    except EsperError as error:
        results = replace(results, failures=(*results.failures, error))
    return replace(results, alarms=alarms)


def measured(row: Row, effort: Effort) -> Iterator[Figure]:
    """Raises ArmFailedError where an arm fails, DisagreementError where two come to different answers."""
    if isinstance(row, Comparison):
        yield from compared(row, effort)
        return
    with blaming(row.name, "the measurement"):
        yield from row.measure(effort)
