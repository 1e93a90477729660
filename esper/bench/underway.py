"""A run under way: what it has come to so far, which is what an interruption leaves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.machine import this_machine
from esper.bench.results import Alarm, Results
from esper.errors import EsperError


@dataclass(slots=True)
class Underway:
    """Begins when it is made. `on_figure` is told each figure as soon as its row has it."""

    effort: Effort
    on_figure: Callable[[Figure], object] = id
    figures: list[Figure] = field(default_factory=list)
    failures: list[EsperError] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    started_s: float = field(default_factory=time.time)
    load_start: float = field(default_factory=lambda: os.getloadavg()[0])

    def take(self, figures: Iterable[Figure]) -> None:
        """All of one row, as they are made. An error of the row is one of `failures`, and what it had stays."""
        try:
            for figure in figures:
                self.figures.append(figure)
                self.on_figure(figure)
        except EsperError as error:
            self.failures.append(error)

    def results(self) -> Results:
        """Of all that was taken until now, on the machine as it is now."""
        return Results(
            figures=tuple(self.figures),
            failures=tuple(self.failures),
            alarms=tuple(self.alarms),
            machine=this_machine(self.load_start),
            effort=self.effort,
            started_s=self.started_s,
            ended_s=time.time(),
        )
