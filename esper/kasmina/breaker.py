"""A circuit breaker that counts steps instead of seconds."""

from __future__ import annotations

from collections import deque

from esper.leyline import contracts as pb

CLOSED = pb.CircuitBreakerState.BREAKER_CLOSED
OPEN = pb.CircuitBreakerState.BREAKER_OPEN
HALF_OPEN = pb.CircuitBreakerState.BREAKER_HALF_OPEN


class Breaker:
    """Opens at `threshold` failures within `window`; half-open after `open_for`, where any failure opens it again."""

    def __init__(self, threshold: int, window: int, open_for: int) -> None:
        self.threshold, self.window, self.open_for = threshold, window, open_for
        self._failures: deque[int] = deque(maxlen=threshold)
        self._opened_at: int | None = None

    def state(self, now: int) -> pb.CircuitBreakerState:
        if self._opened_at is None:
            return CLOSED
        return OPEN if now < self._opened_at + self.open_for else HALF_OPEN

    def fail(self, now: int) -> None:
        self._failures.append(now)
        recent = [at for at in self._failures if at > now - self.window]
        if self.state(now) == HALF_OPEN or len(recent) >= self.threshold:
            self._opened_at = now

    def succeed(self, now: int) -> None:
        if self.state(now) == HALF_OPEN:
            self.close()

    def close(self) -> None:
        self._failures.clear()
        self._opened_at = None
