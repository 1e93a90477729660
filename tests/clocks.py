"""A clock for what asks one for seconds."""

from __future__ import annotations


class Clock:
    """Time passes when a test says so."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s
