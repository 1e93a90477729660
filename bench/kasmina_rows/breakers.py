"""What asking a circuit breaker costs, beside reading the clock that it asks."""

from __future__ import annotations

import time
from collections.abc import Callable

from esper.kasmina.breaker import CLOSED, HALF_OPEN, OPEN, Breaker, BreakerSettings
from report import Report
from turns import turns

CALLS, WARM = 100, 20


def measure(report: Report, quick: bool) -> None:
    num = 400 if quick else 4_000
    closed, opened, half, failing = (Breaker(BreakerSettings(3, seconds)) for seconds in (1e9, 1e9, 0.0, 1e9))
    for breaker in (opened, half):
        for _ in range(3):
            breaker.fail()
    assert (closed.state, opened.state, half.state) == (CLOSED, OPEN, HALF_OPEN)
    arms: dict[str, Callable[[], object]] = {
        "clock alone": time.monotonic,
        "clock alone, again": time.monotonic,
        "check, closed": lambda: closed.state,
        "check, open": lambda: opened.state,
        "check, half-open": lambda: half.state,
        "failure": failing.fail,
        "success": closed.succeed,
    }
    report.add_arms("circuit breaker", turns(arms, num, warm=WARM, per_s=1e6, calls=CALLS), "us", against="clock alone")
    report.add_target("circuit breaker", "p50", 10.0, "us")
