"""What a run came to: its figures, the machine that they are from, and what went wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.machine import Machine
from esper.errors import EsperError


@dataclass(frozen=True, slots=True)
class Alarm:
    """An arm that was slower than its baseline in this run and in the one before it, on this machine."""

    row: str
    arm: str
    ratio: float
    p_value: float

    def __str__(self) -> str:
        return f"{self.row}, {self.arm}: {self.ratio:.3f} times its baseline, twice running (p = {self.p_value:.2g})"


@dataclass(frozen=True, slots=True)
class Sitting:
    """Rows that were measured in one go, at one commit: a run that was stopped and begun anew has several.

    `load`: of the minute.
    """

    rows: tuple[str, ...]
    commit: str
    dirty: bool
    load_start: float
    load_end: float
    started_s: float
    ended_s: float

    def __str__(self) -> str:
        began, ended = (time.strftime("%Y-%m-%d %H:%M", time.gmtime(at)) for at in (self.started_s, self.ended_s))
        where = f"{self.commit[:12] or 'an unknown commit'}{' with changes' if self.dirty else ''}"
        load = f"load {self.load_start:.2f} to {self.load_end:.2f}"
        return f"{began} to {ended} UTC at {where}, {load}: {', '.join(self.rows)}"


@dataclass(frozen=True, slots=True)
class Results:
    """`failures`: rows that failed, each with ArmFailedError or DisagreementError. Times are seconds since 1970.

    `took_s`: seconds of each row that is done; `left`: rows that an interruption came before. `machine` is that of the
    last sitting.
    """

    figures: tuple[Figure, ...]
    failures: tuple[EsperError, ...]
    alarms: tuple[Alarm, ...]
    machine: Machine
    effort: Effort
    started_s: float
    ended_s: float
    took_s: Mapping[str, float] = field(default_factory=dict)
    sittings: tuple[Sitting, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def missed(self) -> list[Figure]:
        """Those whose target is a gate and was not met."""
        return [figure for figure in self.figures if figure.gate and figure.met is False]

    @property
    def status(self) -> int:
        """Exit status: 1 where a row failed; in gate mode also on an alarm or a missed gate. Never for a bad figure."""
        gated = self.effort.mode == "gate" and bool(self.alarms or self.missed)
        return 1 if self.failures or gated else 0
