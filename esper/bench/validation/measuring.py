"""Rows measured by name on behalf of the documents' classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from esper.bench.effort import EFFORTS, Effort
from esper.bench.figures import Figure
from esper.bench.history.store import Store
from esper.bench.machine import this_machine
from esper.bench.registry import registered
from esper.bench.results import Alarm
from esper.bench.row import Row
from esper.bench.runner import run
from esper.bench.validation.readings import Readings
from esper.errors import SettingError, near


class Measuring:
    """What was measured so far. Raises a row's own error where it fails: nothing stands in for it."""

    def __init__(
        self,
        effort: Effort = EFFORTS["quick"],
        *,
        rows: Mapping[str, Row] | None = None,
        store: Store | None = None,
        on_figure: Callable[[Figure], object] = id,
    ) -> None:
        """`rows`: those of the suite; `store`: where earlier runs are; `on_figure` is told each figure at once, as
        what sends it on as telemetry is."""
        self.effort, self.store, self.on_figure = effort, store, on_figure
        self.rows = registered() if rows is None else rows
        self.readings = Readings()
        self.performance_metrics: dict[str, dict[str, Any]] = {}  # of validations, by their names
        self.validation_results: dict[str, bool] = {}
        self.benchmark_results: dict[str, dict[str, Any]] = {}
        self.alarms: dict[str, Sequence[Alarm]] = {}  # by row
        self.num_sessions = 0 if store is None else len(store.sessions(this_machine().key))  # before this one

    def measure(self, *names: str, iterations: int | None = None) -> Readings:
        """All readings so far, with these rows measured anew; `iterations`: so many rounds of each, no more or less."""
        effort = self.effort
        if iterations is not None:
            effort = replace(effort, min_pairs=iterations, max_pairs=iterations)
        results = run([self._row(name) for name in names], effort, self.on_figure, self.store)
        for failure in results.failures:
            raise failure
        self.readings.add(results.figures)
        self.alarms |= {name: [alarm for alarm in results.alarms if alarm.row == name] for name in names}
        return self.readings

    def get_performance_metrics(self) -> dict[str, float]:
        """Every value that was measured, by "row, arm, statistic"."""
        return self.readings.numbers()

    def _row(self, name: str) -> Row:
        if name not in self.rows:
            raise SettingError("the benchmark", name, f"one of `esper bench list`{near(name, [*self.rows])}")
        return self.rows[name]
