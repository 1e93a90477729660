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

from esper.bench.arm import Ready
from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.timing.clock import in_a_row, timed
from esper.bench.timing.pairs import in_turns

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
        "hmac of 256 bytes": many(lambda: hmac.digest(KEY, message, "sha256")),
        "system call": many(os.getppid),
        "clock read": many(time.perf_counter_ns),
    }


def many(call: Callable[[], object]) -> Limit:
    return Limit(in_a_row(call, NUM_CALLS), NUM_CALLS / 1e6, "M/s")


def measure(effort: Effort) -> Iterator[Figure]:
    """Rates, the arms taking turns in an order drawn anew for each round."""
    arms = limits()
    calls = {name: timed(Ready(limit.call)) for name, limit in arms.items()}
    taken = in_turns(calls, effort.min_pairs, random.Random(effort.seed), warm=WARM)
    for name, limit in arms.items():
        values = [limit.amount / seconds for seconds in taken[name]]
        yield Figure(ROW, name, "p50", statistics.median(values), limit.unit, len(values), higher=True, samples=values)
