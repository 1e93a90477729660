"""How long is measured: quick for a person who waits, gate for a commit, full for a figure that is published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from esper.errors import SettingError

Mode: TypeAlias = Literal["quick", "gate", "full"]
FEWEST = 2
"""Pairs that can be resampled at all."""
TOO_LONG = "left out of a quick run"
"""Why there is no figure of what takes too long for one."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Pairs of calls: at least `min_pairs`, then on until the ratio's interval is narrower than `width` relative,
    `max_pairs` are taken, or `seconds` are over (never before `min_pairs`). Raises SettingError for what can't be."""

    mode: Mode
    min_pairs: int
    max_pairs: int
    width: float
    seconds: float
    seed: int = 0

    def __post_init__(self) -> None:
        if self.min_pairs < FEWEST:
            raise SettingError("pairs of calls at least", self.min_pairs, f"{FEWEST} or more: a ratio has an interval")
        if self.max_pairs < self.min_pairs:
            raise SettingError("pairs of calls at most", self.max_pairs, f"as many as at least, {self.min_pairs}")
        for name, value in (("width of an interval", self.width), ("seconds of a row", self.seconds)):
            if not value >= 0.0:
                raise SettingError(name, value, "a number, 0 or more")

    @property
    def is_quick(self) -> bool:
        return self.mode == "quick"


EFFORTS: dict[Mode, Effort] = {
    "quick": Effort("quick", 30, 200, 0.05, 5.0),
    "gate": Effort("gate", 60, 600, 0.03, 15.0),
    "full": Effort("full", 200, 4_000, 0.02, 60.0),
}
