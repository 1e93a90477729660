"""Rates of counters over a sliding window of time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

WINDOW_MS = 10_000


@dataclass
class RateWindow:
    """Samples of counters, the newest ten seconds of them. A counter that falls began anew, and so does the window."""

    _samples: deque[tuple[int, Mapping[str, float]]] = field(default_factory=deque)

    def note(self, at_ms: int, counts: Mapping[str, float]) -> None:
        """Samples in order of time; one that is not later than the last is left out."""
        if self._samples:
            last_ms, last = self._samples[-1]
            if at_ms <= last_ms:
                return
            if any(counts.get(name, 0) < value for name, value in last.items()):
                self._samples.clear()
        self._samples.append((at_ms, counts))
        while len(self._samples) > 2 and at_ms - self._samples[1][0] >= WINDOW_MS:
            self._samples.popleft()

    def per_s(self, name: str) -> float | None:
        """Mean rate over the window, 1/s; None: fewer than two samples."""
        if len(self._samples) < 2:
            return None
        (first_ms, first), (last_ms, last) = self._samples[0], self._samples[-1]
        return (last.get(name, 0) - first.get(name, 0)) * 1000 / (last_ms - first_ms)
