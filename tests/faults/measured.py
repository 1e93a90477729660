"""What 64 sources measure, by seed; and what all of it comes to. Imports nothing of the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from datasketches import kll_doubles_sketch
from numpy.typing import NDArray

RANKS = (0.01, 0.1, 0.5, 0.9, 0.99)
TOLERANCE = 1e-9
NAMES = ("v", "x")  # whole numbers, of which any sum is exact; and a wide spread


class Part(NamedTuple):
    """Rows of one source under one seal, numbered from `first`."""

    source: int
    first: int
    size: int


def values_of(seed: int, source: int, count: int) -> NDArray[np.float64]:
    """(rows, metrics) of one source."""
    generator = np.random.default_rng((seed, source))
    return np.stack([generator.integers(0, 1000, count).astype(float), generator.lognormal(1.0, 2.0, count)], axis=1)


def parts(num_sources: int, count: int) -> list[Part]:
    """How the rows go out, all sources abreast: an eighth of them in tables, an eighth one by one, others in frames."""
    whole = [
        Part(source, first, min(size, count + 1 - first))
        for source in range(num_sources)
        for size in (256 if source % 8 == 0 else 1 if source % 8 == 1 else 32,)
        for first in range(1, count + 1, size)
    ]
    return sorted(whole, key=lambda part: (part.first + part.size, part.source))


def differences(found: Any, values: NDArray[np.float64]) -> Iterator[str]:
    """Where the figures of one metric are not those of a float64 reduction of all its values."""
    mean = values.mean()
    exact = {"count": len(values), "min": values.min(), "max": values.max()}
    close = {"sum": values.sum(), "mean": mean, "m2": np.square(values - mean).sum()}
    for name, figure in exact.items():
        if getattr(found, name) != figure:
            yield f"{name} is {getattr(found, name)}; expected {figure}"
    for name, figure in close.items():
        if abs(getattr(found, name) - figure) > TOLERANCE * abs(figure):
            yield f"{name} is {getattr(found, name)!r}; expected {figure!r} to {TOLERANCE}"
    yield from _ranks_off(found.sketch, np.sort(values))


def _ranks_off(data: bytes, ordered: NDArray[np.float64]) -> Iterator[str]:
    """Ranks past twice the error that the library states for 99 of 100 sketches.

    Of the 250 that a full row reads some may lie beyond the error itself, with nothing wrong; tests/test_kll.py holds
    how many do.
    """
    sketch = kll_doubles_sketch.deserialize(data)
    for rank in RANKS:
        quantile = sketch.get_quantile(rank)
        low, high = (np.searchsorted(ordered, quantile, side) / len(ordered) for side in ("left", "right"))
        if not low - 2 * sketch.normalized_rank_error(False) <= rank <= high + 2 * sketch.normalized_rank_error(False):
            yield f"the quantile of rank {rank} is {quantile}, which has rank {low} to {high}"
