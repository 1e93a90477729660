"""Arms that take turns, in an order drawn anew for each round, so that a slow stretch of the machine meets them all."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping


def turns(
    arms: Mapping[str, Callable[[], object]], num: int, *, warm: int, per_s: float, calls: int = 1
) -> dict[str, list[float]]:
    """What a call of each arm took, `per_s` being units in a second; `calls` in a row where one is too short to time.

    The first `warm` of the rounds are left out, and come on top of `num`.
    """
    draw, order = random.Random(0), list(arms)
    samples: dict[str, list[float]] = {arm: [] for arm in arms}
    for turn in range(warm + num):
        draw.shuffle(order)
        for arm in order:
            call = arms[arm]
            begun = time.perf_counter_ns()
            for _ in range(calls):
                call()
            taken = (time.perf_counter_ns() - begun) / 1e9 * per_s / calls
            if turn >= warm:
                samples[arm].append(taken)
    return samples
