"""Ranks agree on the newest step that is good on all of them."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from esper.tolaria.checkpoints.common import newest_common


class Ranks:
    """Threads that average numbers, each of them calling alike."""

    def __init__(self, num: int) -> None:
        self.values = [0.0] * num
        self.barrier = threading.Barrier(num, timeout=120)

    def mean(self, rank: int, value: float) -> float:
        self.values[rank] = value
        self.barrier.wait()
        mean = sum(self.values) / len(self.values)
        self.barrier.wait()
        return mean


def agreed(held: list[set[int]]) -> list[int | None]:
    ranks = Ranks(len(held))

    def one(rank: int) -> int | None:
        steps = sorted(range(1, 40), reverse=True)
        return newest_common(steps, held[rank].__contains__, lambda value: ranks.mean(rank, value))

    with ThreadPoolExecutor(len(held)) as pool:
        return list(pool.map(one, range(len(held))))


@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_largest_of_the_intersection(seed: int) -> None:
    draw = random.Random(seed)
    held = [set(draw.sample(range(1, 40), draw.randint(0, 12))) for _ in range(draw.randint(1, 4))]
    common = set.intersection(*held)

    assert agreed(held) == [max(common, default=None)] * len(held)
