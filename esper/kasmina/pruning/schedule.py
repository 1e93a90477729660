"""How many of the channels to be pruned are pruned by now."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ramp:
    """From none at `start` to all `num_steps` later, in jumps of `every` steps. Zero steps: all at once."""

    start: int
    num_steps: int
    every: int = 1

    def share(self, step: int) -> float:
        """1 - (1 - t)**3, t the time gone as a share: Zhu & Gupta 2017, arXiv 1710.01878, eq. 1, between 0 and 1."""
        if step >= self.end:
            return 1.0
        gone = (step - self.start) // self.every * self.every
        return 1.0 - (1.0 - max(0, gone) / self.num_steps) ** 3

    def count(self, step: int, total: int) -> int:
        """Of `total` channels, rounded to the nearest."""
        return int(self.share(step) * total + 0.5)

    @property
    def end(self) -> int:
        return self.start + self.num_steps
