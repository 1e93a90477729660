"""What asking a circuit breaker costs, beside reading the clock that it asks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from esper.kasmina.breaker import CLOSED, HALF_OPEN, OPEN, Breaker, BreakerSettings
from report import Report

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
    report.add_arms("circuit breaker", rounds(arms, num), "us", against="clock alone")
    report.add_target("circuit breaker", "p50", 10.0, "us")


def rounds(arms: dict[str, Callable[[], object]], num: int) -> dict[str, list[float]]:
    """Microseconds a call, each sample the mean of many: one is shorter than the clock can tell."""
    draw, order = random.Random(0), list(arms)
    samples: dict[str, list[float]] = {arm: [] for arm in arms}
    for turn in range(WARM + num):
        draw.shuffle(order)
        for arm in order:
            call = arms[arm]
            begun = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            taken = (time.perf_counter_ns() - begun) / 1e3 / CALLS
            if turn >= WARM:
                samples[arm].append(taken)
    return samples
