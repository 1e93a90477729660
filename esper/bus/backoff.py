"""How long to wait before trying again: longer each time, and never in step with others."""

from __future__ import annotations

import random

FIRST_S = 0.05
LONGEST_S = 2.0


class Backoff:
    """Delays that double up to two seconds, each drawn from its upper half. Knows no clock."""

    def __init__(self, jitter: random.Random | None = None) -> None:
        self.failures = 0
        self.jitter = jitter or random.Random()

    def next_s(self) -> float:
        """Delay before the next try."""
        longest = min(LONGEST_S, FIRST_S * 2**self.failures)
        self.failures = min(self.failures + 1, 16)
        return self.jitter.uniform(longest / 2, longest)

    def reset(self) -> bool:
        """Forget the failures; whether there were any."""
        failed, self.failures = self.failures > 0, 0
        return failed
