"""What is measured: comparisons of arms, and measurements that are no matter of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from esper.bench.agreement import EXACT, Tolerance
from esper.bench.arm import Arm
from esper.bench.device import told
from esper.bench.effort import Effort
from esper.bench.figures import Figure

Unit: TypeAlias = Literal["s", "ms", "us", "ns"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a seed asks of one statistic of an arm, in the row's unit: "p50", "p95", "p99", "max", "mean", "ratio",
    "p99 ratio".

    A ratio is of medians, or of 99th percentiles, to the first arm's. `gate`: a miss is an exit status of 1 in gate
    mode, so only for what holds on any machine, as ratios do.
    """

    arm: str
    stat: str
    target: float
    aspiration: float | None = None
    gate: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """Arms that do the same work, timed in one interleaved run beside an A/A control of the first.

    The first arm is the reference: every other is given as a ratio to it. `threshold` is the smallest relative
    difference that matters; `limit` names the arm that is the machine's own limit for this work, if there is one.
    """

    name: str
    family: str
    arms: tuple[Arm, ...]
    unit: Unit = "ms"
    shape: str = ""
    goals: tuple[Goal, ...] = ()
    tolerance: Tolerance = EXACT
    threshold: float = 0.05
    limit: str = ""
    calls: int = 1
    """In one sample, where a call is too short for the clock: each sample is their mean, each figure of one call."""
    is_heavy: bool = False
    """One call takes a good part of a second: a quick run does without the row, and says so."""
    is_placed: bool = False
    """Its arms make all tensors where the default device is, and work on the device that --device names."""
    load: Callable[[], Callable[[], object]] | None = None
    """Started before the first call and kept running throughout; what it returns ends it."""

    @property
    def conditions(self) -> str:
        """The shape, how many calls there are to a sample (percentiles are then of means), and the device."""
        said = f"each sample the mean of {self.calls:,} calls" if self.calls > 1 else ""
        return "; ".join(filter(None, (self.shape, said, told(self.is_placed))))


@dataclass(frozen=True, slots=True)
class Measurement:
    """Figures that are no matter of pairs: sizes, counts, bytes of memory, steps to a loss, drift over hours."""

    name: str
    family: str
    measure: Callable[[Effort], Iterable[Figure]]
    times: float = 12.0
    """As long as a quick run does a full one take, by its amounts; 12 for what goes by an effort's seconds."""


Row: TypeAlias = Comparison | Measurement
