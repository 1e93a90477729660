"""Circuit breakers: closed, open after failures, half-open after a while. They open, they decide nothing."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from esper.errors import SettingError
from esper.leyline import contracts as pb

CLOSED = pb.CircuitBreakerState.BREAKER_CLOSED
OPEN = pb.CircuitBreakerState.BREAKER_OPEN
HALF_OPEN = pb.CircuitBreakerState.BREAKER_HALF_OPEN


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """`threshold` failures within `window_s` open it for `open_s`; then `successes` in a row close it again."""

    threshold: int
    open_s: float
    window_s: float = math.inf
    successes: int = 1

    def __post_init__(self) -> None:
        for name, lowest in (("threshold", 1), ("open_s", 0.0), ("window_s", 0.0), ("successes", 1)):
            value = getattr(self, name)
            if not value >= lowest:
                raise SettingError(f"breaker {name}", value, f"a number of at least {lowest:g}")


# Names, thresholds and times of the Kasmina documents. What is rare or slow by itself is never forgotten by time: one
# violation a minute is three violations, and two loads of a teacher may lie further apart than three minutes.
BREAKERS: Mapping[str, BreakerSettings] = {
    "isolation": BreakerSettings(threshold=3, open_s=30.0),
    "memory": BreakerSettings(threshold=5, open_s=60.0, window_s=60.0),
    "kernel": BreakerSettings(threshold=10, open_s=30.0, window_s=30.0),
    "recompile": BreakerSettings(threshold=3, open_s=120.0),
    "teacher": BreakerSettings(threshold=2, open_s=180.0),
    "optimizer": BreakerSettings(threshold=3, open_s=30.0),
}


class Breaker:
    """One breaker on one rank. Any failure while half-open opens it again.

    Clocks of ranks differ, so that a breaker may open on one rank alone: what follows from its state must be requested
    of the coordinator, or agreed on by a collective, and never carried out by this rank for itself.
    """

    __slots__ = ("_clock", "_failures", "_opened_at", "_successes", "_wall", "opened", "settings")

    def __init__(
        self,
        settings: BreakerSettings,
        clock: Callable[[], float] = time.monotonic,
        opened: Callable[[], object] = lambda: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives seconds and never goes back; `opened` is called whenever it opens, also out of half-open.

        `wall` gives the seconds that another process goes by, too.
        """
        self.settings, self.opened = settings, opened
        self._clock, self._wall = clock, wall
        self._failures: deque[float] = deque(maxlen=settings.threshold)
        self._opened_at: float | None = None
        self._successes = 0

    @property
    def state(self) -> pb.CircuitBreakerState:
        if self._opened_at is None:
            return CLOSED
        return OPEN if self._clock() < self._opened_at + self.settings.open_s else HALF_OPEN

    def fail(self) -> None:
        now, before = self._clock(), self.state
        self._failures.append(now)
        crowded = len(self._failures) == self.settings.threshold and self._failures[0] > now - self.settings.window_s
        if crowded or before == HALF_OPEN:
            self._opened_at, self._successes = now, 0
            if before != OPEN:
                self.opened()

    def succeed(self) -> None:
        """Count towards closing while half-open; closed or open it changes nothing, failures included."""
        if self.state == HALF_OPEN:
            self._successes += 1
            if self._successes >= self.settings.successes:
                self.close()

    def close(self) -> None:
        """Forget every failure."""
        self._failures.clear()
        self._opened_at, self._successes = None, 0

    def state_dict(self) -> dict[str, Any]:
        """How long ago what happened, for a process whose clock began elsewhere."""
        now = self._clock()
        return {
            "failures": [now - each for each in self._failures],
            "opened": None if self._opened_at is None else now - self._opened_at,
            "successes": self._successes,
            "wall_s": self._wall(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As it would be had its process gone on: time in between has passed, none where the wall's was put back."""
        then = self._clock() - max(self._wall() - state["wall_s"], 0.0)
        self._failures = deque((then - age for age in state["failures"]), self.settings.threshold)
        self._opened_at = None if state["opened"] is None else then - state["opened"]
        self._successes = state["successes"]


def breakers_of(
    clock: Callable[[], float] = time.monotonic, opened: Callable[[str], object] = lambda name: None
) -> dict[str, Breaker]:
    """One closed breaker of each name; `opened` is told which one opens."""
    return {name: Breaker(settings, clock, partial(opened, name)) for name, settings in BREAKERS.items()}


class Persistent(Protocol):
    """What a process that resumes takes up, and no rollback does."""

    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class PersistentParts:
    """Breakers, and what else lasts, by name."""

    parts: Mapping[str, Persistent]

    def state_dict(self) -> dict[str, Any]:
        return {name: dict(part.state_dict()) for name, part in self.parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, kept in state.items():
            if name in self.parts:
                self.parts[name].load_state_dict(kept)
