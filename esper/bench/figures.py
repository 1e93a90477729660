"""What is printed: figures, each with its unit, its shape, and a label that says where it is from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

MEASURED, DERIVED = "measured", "derived"
Verdict: TypeAlias = Literal["faster", "slower", "indistinguishable"]


def not_measured(why: str) -> str:
    """The label of a figure that this machine, or this run, does without."""
    return f"not measured: {why}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of one arm's statistic to another's of the same run, with a 95 % interval.

    `floor`: how far the interval of the A/A control reaches from 1; a difference below it is noise. None: no control.
    """

    arm: str
    ratio: float
    low: float
    high: float
    floor: float | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One line. `value` None: `label` says why it was not measured.

    `target` and `aspiration` are of the same unit, and met where the value is not above them (`higher`: not below).
    """

    row: str
    arm: str
    stat: str
    value: float | None
    unit: str
    num: int = 0
    label: str = MEASURED
    shape: str = ""
    vs: Ratio | None = None
    target: float | None = None
    aspiration: float | None = None
    higher: bool = False
    gate: bool = False
    """Whether a missed target is an exit status of 1 in gate mode."""
    samples: Sequence[float] = ()
    """What the report draws: in the figure's unit, in the order in which they were taken."""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None: there is none, or nothing was measured."""
        return self.reaches(self.target)

    def reaches(self, goal: float | None) -> bool | None:
        """Whether it is as good as this; None: there is no goal, or nothing was measured."""
        if self.value is None or goal is None:
            return None
        return self.value >= goal if self.higher else self.value <= goal

    def aimed(self, target: float | None, aspiration: float | None = None) -> Figure:
        """The same, with what is asked of it."""
        return replace(self, target=target, aspiration=aspiration)
