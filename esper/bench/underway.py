"""A run under way: what it has come to so far, which is what an interruption leaves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.machine import this_machine
from esper.bench.results import Alarm, Results, Sitting
from esper.bench.timing.overdue import within
from esper.errors import EsperError


@dataclass(slots=True)
class Underway:
    """Begins when it is made. `on_figure` is told each figure as soon as its row has it, `on_row` what a row came to
    once it is done, as results of that row alone: not of one that failed. `on_end`: the row, its seconds, its error.

    `kept`: such results of rows that an earlier sitting has done. `planned`: the names of all rows. `limit_s`: after
    which a row that is not done fails.
    """

    effort: Effort
    on_figure: Callable[[Figure], object] = id
    on_row: Callable[[Results], object] | None = None
    on_end: Callable[[str, float, EsperError | None], object] = lambda row, seconds, error: None
    kept: Sequence[Results] = ()
    planned: Sequence[str] = ()
    limit_s: float | None = None
    figures: list[Figure] = field(default_factory=list)
    failures: list[EsperError] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    took_s: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    seats: list[Sitting] = field(default_factory=list)  # of each row that `on_row` was told
    started_s: float = field(default_factory=time.time)
    load_start: float = field(default_factory=lambda: os.getloadavg()[0])

    @property
    def done(self) -> dict[str, float]:
        """Rows that need not be measured any more, of this sitting and earlier ones, and the seconds that they took."""
        earlier = {row: seconds for results in self.kept for row, seconds in results.took_s.items()}
        return earlier | self.took_s

    def take(self, row: str, figures: Iterable[Figure]) -> None:
        """All of one row, as they are made. An error of the row is one of `failures`, and what it had stays."""
        began, first = time.monotonic(), len(self.figures)
        try:
            within(row, self.limit_s, lambda: self._tell(figures))
        except EsperError as error:
            self.failures.append(error)
            self.failed.add(row)
            self.on_end(row, time.monotonic() - began, error)
            return
        self.took_s[row] = time.monotonic() - began
        self.on_end(row, self.took_s[row], None)
        if self.on_row is not None:
            own = self._of(self.figures[first:], {row: self.took_s[row]})
            self.seats += own.sittings
            self.on_row(own)

    def _tell(self, figures: Iterable[Figure]) -> None:
        for figure in figures:
            self.figures.append(figure)
            self.on_figure(figure)

    def results(self) -> Results:
        """Of all that was taken until now and what was kept, on the machine as it is now."""
        own = self._of(self.figures, self.took_s)
        left = tuple(row for row in self.planned if row not in self.done and row not in self.failed)
        own = replace(own, failures=tuple(self.failures), alarms=tuple(self.alarms), left=left)
        if self.seats:
            now = sittings_of([*self.seats, replace(own.sittings[0], rows=())])
            own = replace(own, sittings=tuple(each for each in now if each.rows))
        if not self.kept:
            return own
        kept = tuple(figure for results in self.kept for figure in results.figures)
        earlier = sittings_of(each for results in self.kept for each in results.sittings)
        sittings = tuple(each for each in (*earlier, *own.sittings) if each.rows)
        began_s = min(each.started_s for each in sittings)
        threads = max(each.machine.threads for each in (*self.kept, own))  # 0 where a sitting did without torch
        machine = replace(own.machine, threads=threads)
        whole = replace(own, machine=machine, took_s=self.done, sittings=sittings, started_s=began_s)
        return replace(whole, figures=(*kept, *own.figures))

    def _of(self, figures: Sequence[Figure], took_s: Mapping[str, float]) -> Results:
        """Of this sitting."""
        machine, ended_s = this_machine(self.load_start), time.time()
        loads = (machine.load_start, machine.load_end)
        sitting = Sitting(tuple(took_s), machine.commit, machine.dirty, *loads, self.started_s, ended_s)
        return Results(
            figures=tuple(figures),
            failures=(),
            alarms=(),
            machine=machine,
            effort=self.effort,
            started_s=self.started_s,
            ended_s=ended_s,
            took_s=dict(took_s),
            sittings=(sitting,),
        )


def sittings_of(seats: Iterable[Sitting]) -> list[Sitting]:
    """Those of rows that were measured in one go, at one commit, as one; in the order in which they ended."""
    found, began_s = list[Sitting](), -1.0
    for each in sorted(seats, key=lambda sitting: sitting.ended_s):
        if not found or each.started_s != began_s:
            found.append(each)
        elif (found[-1].commit, found[-1].dirty) == (each.commit, each.dirty):
            found[-1] = replace(each, rows=(*found[-1].rows, *each.rows), started_s=found[-1].started_s)
        else:  # the checkout has moved meanwhile
            found.append(replace(each, load_start=found[-1].load_end, started_s=found[-1].ended_s))
        began_s = each.started_s
    return found
