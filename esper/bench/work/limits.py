"""What this machine does at most in one thread: what every other figure of the same run can be held against."""

from __future__ import annotations

import hashlib
import hmac
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from esper.bench.effort import Effort
from esper.bench.figures import Figure

ROW, WARM = "machine-limits", 3
NUM_FLOATS, WIDTH, NUM_BYTES = 1 << 23, 512, 1 << 20
NUM_CALLS = 1_000
KEY = bytes(32)


@dataclass(frozen=True, slots=True)
class Limit:
    """One call does `amount`, in units of `unit` times a second."""

    call: Callable[[], object]
    amount: float
    unit: str


def limits() -> dict[str, Limit]:
    source, into = torch.randn(NUM_FLOATS), torch.empty(NUM_FLOATS)
    left, right, out = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH), torch.empty(WIDTH, WIDTH)
    data, message = bytes(NUM_BYTES), bytes(256)
    return {
        "memory copied": Limit(lambda: into.copy_(source), 2 * source.nbytes / 1e9, "GB/s"),  # read and written
        "matrices multiplied": Limit(lambda: torch.mm(left, right, out=out), 2 * WIDTH**3 / 1e9, "GFLOP/s"),
        "sha256": Limit(lambda: hashlib.sha256(data).digest(), NUM_BYTES / 1e9, "GB/s"),
        "hmac of 256 bytes": Limit(many(lambda: hmac.digest(KEY, message, "sha256")), NUM_CALLS / 1e6, "M/s"),
        "system call": Limit(many(os.getppid), NUM_CALLS / 1e6, "M/s"),
        "clock read": Limit(many(time.perf_counter_ns), NUM_CALLS / 1e6, "M/s"),
    }


def many(call: Callable[[], object]) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(NUM_CALLS):
            call()

    return calls


def measure(effort: Effort) -> Iterator[Figure]:
    """Rates, the arms taking turns in an order drawn anew for each round."""
    arms, draw = limits(), random.Random(effort.seed)
    rates: dict[str, list[float]] = {name: [] for name in arms}
    for at in range(WARM + effort.min_pairs):
        for name in draw.sample(list(arms), len(arms)):
            begun = time.perf_counter_ns()
            arms[name].call()
            rate = arms[name].amount / ((time.perf_counter_ns() - begun) / 1e9)
            if at >= WARM:
                rates[name].append(rate)
    for name, limit in arms.items():
        values = rates[name]
        yield Figure(ROW, name, "p50", statistics.median(values), limit.unit, len(values), higher=True, samples=values)
