"""Settings of pruning, with the reason for each bound beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from esper.errors import SettingError

CURVES = ("cubic", "one_shot")


@dataclass(frozen=True, slots=True)
class KasminaCheckpointPruningConfig:
    """How much may be pruned, how fast, and what undoes it."""

    safety_margin: float = 0.5  # the largest share of a layer's channels, or heads, that may be pruned
    schedule: str = "one_shot"  # or cubic: Zhu & Gupta 2017, arXiv 1710.01878
    ramp_steps: int = 0  # cubic: steps from the command to the last channel
    ramp_every: int = 10  # cubic: steps between two prunings
    importance_every: int = 1  # steps between two measurements; 0: none. Norms alike, until a change is watched
    max_accuracy_drop: float = 0.02  # of the noted accuracy, a share: 0.02 are two points
    max_gradient_ratio: float = 5.0  # gradient norm over its running median
    median_steps: int = 50  # steps that this median runs over
    watch_steps: int = 1000  # after the last channel was pruned; then the copies are given up
    check_every: int = 8  # steps between two looks at what is watched, each of which waits for the device
    max_consecutive_failures: int = 3  # changes undone in a row, after which pruning is disabled
    heads: Mapping[str, int] = field(default_factory=dict)  # output projection of an attention: number of its heads
    layers: Sequence[str] = ()  # modules that may be pruned whole; safety_margin is then a share of these
    weights: Sequence[str] = ()  # parameters that are pruned by single weights, and not by channels

    def __post_init__(self) -> None:
        """Raises SettingError for a value that can't be meant."""
        if not 0 < self.safety_margin < 1:
            raise SettingError("safety_margin", self.safety_margin, "a share between 0 and 1")
        if self.schedule not in CURVES:
            raise SettingError("schedule", self.schedule, f"one of {', '.join(CURVES)}")
        if not 0 <= self.max_accuracy_drop < 1:
            raise SettingError("max_accuracy_drop", self.max_accuracy_drop, "a share from 0 up to 1")
        if not self.max_gradient_ratio > 1:
            raise SettingError("max_gradient_ratio", self.max_gradient_ratio, "a number above 1")
        for name in ("ramp_every", "median_steps", "watch_steps", "check_every", "max_consecutive_failures"):
            _whole(name, getattr(self, name), 1)
        for name in ("ramp_steps", "importance_every"):
            _whole(name, getattr(self, name), 0)
        for name in ("layers", "weights"):
            if isinstance(getattr(self, name), str):
                raise SettingError(name, getattr(self, name), "a list of names")
        for site, num_heads in self.heads.items():
            _whole(f"heads[{site!r}]", num_heads, 2)


def _whole(name: str, value: int, least: int) -> None:
    if value != int(value) or value < least:
        raise SettingError(name, value, f"a whole number from {least} up")
