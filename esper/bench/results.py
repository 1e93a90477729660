"""What a run came to: its figures, the machine that they are from, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass

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
class Results:
    """`failures`: rows that failed, each with ArmFailedError or DisagreementError. Times are seconds since 1970."""

    figures: tuple[Figure, ...]
    failures: tuple[EsperError, ...]
    alarms: tuple[Alarm, ...]
    machine: Machine
    effort: Effort
    started_s: float
    ended_s: float

    @property
    def missed(self) -> list[Figure]:
        """Those whose target is a gate and was not met."""
        return [figure for figure in self.figures if figure.gate and figure.met is False]

    @property
    def status(self) -> int:
        """Exit status: 1 where a row failed; in gate mode also on an alarm or a missed gate. Never for a bad figure."""
        gated = self.effort.mode == "gate" and bool(self.alarms or self.missed)
        return 1 if self.failures or gated else 0
