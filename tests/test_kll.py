"""Sketches written without the library: it must read them, and find in them what was put in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from esper.narset.kll import Sketch, sketches_of
from esper.narset.sketch import SKETCH_K, read_sketch

SIZES = (1, 2, 32, SKETCH_K, SKETCH_K + 1, 401, 402, 8191, 8192, 131_072)
RANKS = np.linspace(0.0, 1.0, 201)


def values_of(size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(size).lognormal(size=size)


def sketches(stack: np.ndarray[Any, np.dtype[np.float64]]) -> list[list[Sketch]]:
    return sketches_of(stack, stack.min(axis=2).tolist(), stack.max(axis=2).tolist())


def written(values: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    [[sketch]] = sketches(values[np.newaxis, np.newaxis])
    return read_sketch(sketch.serialize())


def ranks_off(met: Any, values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """At 201 of the values in their order: the rank by the sketch, less the true one."""
    asked = np.sort(values)[(RANKS * (len(values) - 1)).astype(int)]
    true = np.searchsorted(np.sort(values), asked, side="right") / len(values)
    found: np.ndarray[Any, np.dtype[np.float64]] = np.array([met.get_rank(each, True) for each in asked]) - true
    return found


@pytest.mark.parametrize("size", SIZES)
def test_the_library_reads_a_sketch_of_any_size(size: int) -> None:
    values = values_of(size)

    met = written(values)

    assert (met.n, met.get_min_value(), met.get_max_value()) == (size, values.min(), values.max())
    assert np.abs(ranks_off(met, values)).max() < (0.01 if size > SKETCH_K else 1e-12)


def test_a_rank_is_off_by_nothing_on_average() -> None:
    values = values_of(8191)

    off = np.mean([ranks_off(written(values), values) for _ in range(400)], axis=0)

    assert np.abs(off).max() < 0.0015  # a stretch is 0.0078: of the mean of 400 that is 7.6 deviations


def merged(values: np.ndarray[Any, np.dtype[np.float64]], size: int) -> Any:
    """The sketch of these out of those of so many each."""
    whole = Sketch()
    for window in sketches(values.reshape(-1, 1, size)):
        whole.merge(window[0])
    return read_sketch(whole.serialize())


def test_99_in_100_ranks_of_merged_sketches_are_within_the_stated_error() -> None:
    values = values_of(16_384)

    met = [merged(values, 1024) for _ in range(40)]

    off = np.abs([ranks_off(each, values) for each in met])
    assert {each.n for each in met} == {len(values)}
    assert np.mean(off > met[0].normalized_rank_error(False)) <= 0.01


def test_what_was_merged_into_another_stays_as_it_is() -> None:
    [[first, second, third]] = sketches(np.arange(96.0).reshape(1, 3, 32))
    before, whole = second.serialize(), Sketch()

    whole.merge(first)
    whole.merge(second)
    second.merge(third)

    assert read_sketch(before).n == 32
    assert (read_sketch(whole.serialize()).n, read_sketch(first.serialize()).n) == (64, 32)
    assert read_sketch(second.serialize()).n == 64


def test_an_empty_sketch_takes_nothing_of_one_that_it_merged_along() -> None:
    [[plain, more]] = sketches(np.arange(64.0).reshape(1, 2, 32))
    opened = Sketch(kept=read_sketch(plain.serialize()))
    whole = Sketch()

    whole.merge(opened)
    whole.merge(more)

    assert (read_sketch(whole.serialize()).n, read_sketch(opened.serialize()).n) == (64, 32)
