"""How arms take turns at single steps."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Turn = Callable[[], object]
"""One whole training step."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Milliseconds per step of each arm: as they passed, and as this thread had a processor for.

    The second says what a step costs where other work keeps the processors busy, and nothing of what it waited for.
    """

    passed: dict[str, list[float]]
    worked: dict[str, list[float]]


def in_turns(arms: Mapping[str, Turn], num: int, seed: int, num_warm: int) -> Samples:
    """A round gives every arm one step, in an order drawn anew."""
    order, names = random.Random(seed), list(arms)
    samples = Samples({name: [] for name in names}, {name: [] for name in names})
    for number in range(num + num_warm):
        order.shuffle(names)
        for name in names:
            worked, passed = time.thread_time_ns(), time.perf_counter_ns()
            arms[name]()
            passed, worked = time.perf_counter_ns() - passed, time.thread_time_ns() - worked
            if number >= num_warm:
                samples.passed[name].append(passed / 1e6)
                samples.worked[name].append(worked / 1e6)
    return samples
