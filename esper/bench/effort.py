"""How long is measured: quick for a person who waits, gate for a commit, full for a figure that is published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["quick", "gate", "full"]


@dataclass(frozen=True, slots=True)
class Effort:
    """Pairs of calls: at least `min_pairs`, then on until the ratio's interval is narrower than `width` relative,
    `max_pairs` are taken, or `seconds` are over (never before `min_pairs`)."""

    mode: Mode
    min_pairs: int
    max_pairs: int
    width: float
    seconds: float
    seed: int = 0

    @property
    def is_quick(self) -> bool:
        return self.mode == "quick"


EFFORTS: dict[Mode, Effort] = {
    "quick": Effort("quick", 30, 200, 0.05, 5.0),
    "gate": Effort("gate", 60, 600, 0.03, 15.0),
    "full": Effort("full", 200, 4_000, 0.02, 60.0),
}
