"""Asking a circuit breaker, and feeding it."""

from __future__ import annotations

import time
from collections.abc import Callable

from esper.bench.arm import Ready
from esper.kasmina.breaker import CLOSED, HALF_OPEN, OPEN, Breaker, BreakerSettings

THRESHOLD, LONG_S = 3, 1e9
STATES = {CLOSED: (0, LONG_S), OPEN: (THRESHOLD, LONG_S), HALF_OPEN: (THRESHOLD, 0.0)}


def clock() -> Ready:
    """The one thing that a breaker asks."""
    return Ready(time.monotonic)


def in_state(state: int) -> tuple[Breaker, Callable[[], int]]:
    """A breaker that is in this state, and the question. RuntimeError where it says another one."""
    failures, open_s = STATES[state]  # type: ignore[index]
    breaker = Breaker(BreakerSettings(THRESHOLD, open_s))
    for _ in range(failures):
        breaker.fail()
    if breaker.state != state:
        raise RuntimeError(f"the breaker is in state {breaker.state}, expected {state}")
    return breaker, lambda: breaker.state


def asked(state: int) -> Ready:
    return Ready(in_state(state)[1])


def failed() -> Ready:
    """Of a breaker that stays closed: its failures lie too far apart."""
    breaker = Breaker(BreakerSettings(THRESHOLD, LONG_S, window_s=0.0))
    for _ in range(THRESHOLD):
        breaker.fail()
    if breaker.state != CLOSED:
        raise RuntimeError(f"the breaker is in state {breaker.state}, expected {CLOSED}")
    return Ready(breaker.fail)


def failed_again() -> Ready:
    """Of one that is open already."""
    return Ready(in_state(OPEN)[0].fail)


def succeeded() -> Ready:
    return Ready(in_state(CLOSED)[0].succeed)
