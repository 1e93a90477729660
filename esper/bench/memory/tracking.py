"""How many objects the garbage collector would have to look at: what is alive, counted with the collector off."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FEW, MANY = 60, 240
"""The difference between so many items and so few leaves out what is made once."""


@contextmanager
def tracked() -> Iterator[Callable[[], int]]:
    """Within the block the collector is off; the callable says how many objects it tracks more than at the start."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    start = gc.get_count()[0]
    try:
        yield lambda: gc.get_count()[0] - start
    finally:
        if was_on:
            gc.enable()


def per_item(count: Callable[[int], int], few: int = FEW, many: int = MANY) -> float:
    """Objects of one more item, where `count` says those of so many; each number once before, as a warm-up."""
    counts = [count(num) for num in (few, many, few, many)]
    return (counts[3] - counts[2]) / (many - few)


def per_call(call: Callable[[], object]) -> float:
    """Objects alive after one more call, while what it returned is held."""

    def held(num: int) -> int:
        kept: list[object] = [None] * num
        with tracked() as count:
            for at in range(num):
                kept[at] = call()
            return count()

    return per_item(held)
