"""KLL sketches of values that are all at hand, laid out as the library does it."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from datasketches import kll_doubles_sketch
from numpy.typing import NDArray

from esper.narset.sketch import MIN_WIDTH, SKETCH_K, capacity

Lists: TypeAlias = Sequence[Sequence[float]]
"""(windows, metrics)"""

_FULL = struct.Struct("<4BHBxQHBx")  # preamble ints, version, family, flags, k, m; n, smallest k, number of levels
_SINGLE = struct.pack("<4BHBx", 2, 2, 15, 4, SKETCH_K, MIN_WIDTH)
_ENDS = struct.Struct("<2d")
_CHANCE = random.Random()


class Sketch:
    """Bytes for as long as nothing is merged into them, as most are written once and sent. `kept` is the library's."""

    __slots__ = ("_data", "_kept")

    def __init__(self, data: bytes = b"", kept: Any = None) -> None:
        self._data, self._kept = data, kept

    def merge(self, other: Sketch) -> None:
        """Take in another one, which is over disjoint values and stays as it is."""
        if self._kept is None:
            if not self._data and other._kept is None:
                self._data = other._data
                return
            self._kept = self._opened()
        self._kept.merge(other._opened())

    def serialize(self) -> bytes:
        """As the library writes it; of nothing, nothing."""
        if self._kept is None:
            return self._data
        data: bytes = b"" if self._kept.is_empty() else self._kept.serialize()
        return data

    def _opened(self) -> Any:
        if self._kept is not None:
            return self._kept
        return kll_doubles_sketch.deserialize(self._data) if self._data else kll_doubles_sketch(SKETCH_K)


def sketches_of(stack: NDArray[np.float64], lows: Lists, highs: Lists) -> list[list[Sketch]]:
    """Of (windows, metrics, values), all of it finite, and the smallest and largest of each.

    Up to 200 values are all kept. Of more, in their order, one is drawn from each stretch of 2**level of them: a rank
    is off by less than a stretch, which is a hundredth of the values at most, and by nothing on average. Some are left
    over at the end; they make one shorter stretch a level.
    """
    size = stack.shape[2]
    if size == 1:
        return [[Sketch(_SINGLE + row.tobytes()) for row in window] for window in stack]
    head, level = _layout(size)
    kept = _drawn(np.sort(stack, axis=2), level) if level else stack
    rows, num_bytes = kept.tobytes(), kept.shape[2] * kept.itemsize
    ends, starts = _ENDS.pack, iter(range(0, len(rows), num_bytes))
    return [
        [
            Sketch(b"".join((head, ends(low, high), rows[start : start + num_bytes])))
            for low, high, start in zip(*both, starts, strict=False)
        ]
        for both in zip(lows, highs, strict=True)
    ]


@cache  # of windows of few sizes
def _layout(size: int) -> tuple[bytes, int]:
    """All before the smallest value, and the highest level, of which so many values fit."""
    level = (size // (SKETCH_K + 1)).bit_length()
    sizes = [*(size >> each & 1 for each in range(level)), size >> level]
    starts = accumulate(sizes[:-1], initial=capacity(level + 1) - sum(sizes))
    head = _FULL.pack(5, 1, 15, 0, SKETCH_K, MIN_WIDTH, size, SKETCH_K, level + 1)
    return head + struct.pack(f"<{level + 1}I", *starts), level


def _drawn(ordered: NDArray[np.float64], level: int) -> NDArray[np.float64]:
    """What is kept of many values in order, (windows, metrics, values), the lowest level first: one place for all."""
    size, step = ordered.shape[2], 1 << level
    at = whole = size >> level << level
    places = list[int]()
    for length in (1 << each for each in range(level)):
        if size & length:
            places.append(at + _CHANCE.randrange(length))
            at += length
    places += range(_CHANCE.randrange(step), whole, step)
    return np.ascontiguousarray(ordered[:, :, places])
