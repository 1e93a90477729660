"""Statistics of a metric: merged in any order they equal a float64 reduction of all values."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
from datasketches import kll_doubles_sketch
from hypothesis import given, strategies as st

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.narset.running import bins
from esper.narset.sketch import SKETCH_K, read_sketch
from esper.narset.statistics import Origin, Statistics, merge, of_stack, of_values, read

VALUES = st.lists(st.floats(-1e6, 1e6), max_size=40)


def origins(values: list[float], source: str = "worker-0") -> list[Origin]:
    return [Origin(1000 + index, source, index + 1) for index in range(len(values))]


def of(values: list[float], source: str = "worker-0") -> pb.MetricStatistics:
    return of_values(np.array(values), origins(values, source)).message()


def assert_equal(found: pb.MetricStatistics, values: list[float]) -> None:
    """Against plain sums, by math.fsum: independent of numpy's and of the pairwise formula."""
    assert found.count == len(values)
    if not values:
        return
    mean = math.fsum(values) / len(values)
    m2 = math.fsum((value - mean) ** 2 for value in values)
    scale = max(1.0, max(abs(value) for value in values))
    assert (found.min, found.max) == (min(values), max(values))
    assert found.sum == pytest.approx(math.fsum(values), rel=1e-9, abs=1e-9 * scale * len(values))
    assert found.mean == pytest.approx(mean, rel=1e-9, abs=1e-9 * scale)
    assert found.m2 == pytest.approx(m2, rel=1e-9, abs=1e-9 * scale * scale * len(values))


@given(VALUES, VALUES)
def test_the_merged_statistics_are_those_of_all_values_in_either_order(a: list[float], b: list[float]) -> None:
    assert_equal(merge(of(a, "a"), of(b, "b")), a + b)
    assert_equal(merge(of(b, "b"), of(a, "a")), a + b)


@given(VALUES, VALUES, VALUES)
def test_it_does_not_matter_which_pair_is_merged_first(a: list[float], b: list[float], c: list[float]) -> None:
    left = merge(merge(of(a, "a"), of(b, "b")), of(c, "c"))
    right = merge(of(a, "a"), merge(of(b, "b"), of(c, "c")))

    assert_equal(left, a + b + c)
    assert_equal(right, a + b + c)
    assert (left.last, left.last_source) == (right.last, right.last_source)


@given(VALUES)
def test_values_added_one_by_one_give_the_same(values: list[float]) -> None:
    statistics = Statistics()

    for value, origin in zip(values, origins(values), strict=True):
        statistics.add(value, origin)

    assert_equal(statistics.message(), values)


def test_last_is_the_value_with_the_newest_timestamp_then_source_then_sequence() -> None:
    older = of_values(np.array([1.0]), [Origin(5, "worker-9", 99)])
    by_source = of_values(np.array([2.0]), [Origin(6, "worker-1", 1)])
    by_sequence = of_values(np.array([3.0]), [Origin(6, "worker-1", 2)])

    by_sequence.merge(by_source)
    by_sequence.merge(older)

    assert by_sequence.message().last == 3.0


def test_values_that_are_not_finite_are_counted_and_left_out_of_all_else() -> None:
    values = [1.0, math.nan, 3.0, math.inf, -math.inf]

    found = of(values)

    assert_equal(found, [1.0, 3.0])
    assert found.num_non_finite == 3
    assert (found.last, found.last_sequence) == (3.0, 3)
    assert read_sketch(found.sketch).n == 2


def test_a_metric_that_was_never_finite_has_only_its_count_of_those() -> None:
    found = merge(of([math.nan]), of([math.inf]))

    assert found == pb.MetricStatistics(num_non_finite=2)


def test_windows_reduced_together_give_what_each_metric_gives_alone() -> None:
    stack = np.random.default_rng(1).normal(size=(4, 3, 32))
    newest = [(place, Origin(1000 + place, "worker-0", place)) for place in (31, 0, 7, 31)]

    for window, (place, origin), figures in zip(stack, newest, of_stack(stack, newest), strict=True):
        for row, found in zip(window, figures, strict=True):
            assert_equal(found.message(), row.tolist())
            assert (found.last, found.origin) == (row[place], origin)


def test_sums_past_the_largest_double_saturate_and_never_become_infinite() -> None:
    found = merge(of([1.7e308, 1.7e308]), of([-1.7e308, 1.7e308, 1e300]))

    assert all(math.isfinite(figure) for figure in (found.sum, found.mean, found.m2))


def test_quantiles_of_merged_sketches_lie_within_the_stated_rank_error() -> None:
    values = np.random.default_rng(7).lognormal(size=20_000)
    parts = [of(part.tolist(), f"worker-{index}") for index, part in enumerate(np.split(values, 625))]

    whole = pb.MetricStatistics()
    for part in parts:
        whole = merge(whole, part)

    sketch = read_sketch(whole.sketch)
    for rank in (0.01, 0.25, 0.5, 0.9, 0.99):
        true_rank = np.searchsorted(np.sort(values), sketch.get_quantile(rank)) / len(values)
        assert abs(true_rank - rank) <= sketch.normalized_rank_error(False)  # six deviations here


def test_a_sketch_that_is_none_is_refused() -> None:
    broken = of([1.0, 2.0, 3.0])
    broken.sketch = broken.sketch[:-3]

    with pytest.raises(RefusedError, match="cannot be read") as refused:
        read(broken)

    assert refused.value.reason == pb.ReasonCode.REASON_MALFORMED


SIZES = (0, 1, 2, 10, SKETCH_K, SKETCH_K + 1, 1000, 20_000)


@pytest.mark.parametrize("size", SIZES)
def test_a_sketch_is_read_whatever_its_form(size: int) -> None:
    written = kll_doubles_sketch(SKETCH_K)
    written.update(np.random.default_rng(size).normal(size=size))

    met = read_sketch(written.serialize())

    assert (met.n, met.serialize()) == (size, written.serialize())


def test_no_sketch_with_harmed_bytes_kills_the_reader() -> None:
    """The library alone dies of some of these, by a segmentation fault or a broken heap, and hangs at others."""
    chance, found = random.Random(1), Counter[str]()
    written = [of(np.random.default_rng(size).normal(size=size).tolist()).sketch for size in SIZES if size]
    for _ in range(5_000):
        harmed = bytearray(chance.choice(written))
        for _ in range(chance.randrange(1, 4)):
            harmed[chance.randrange(min(len(harmed), 80))] = chance.randrange(256)
        whole = read_sketch(written[-1])
        try:
            whole.merge(read_sketch(bytes(harmed)))
        except RefusedError:
            found["refused"] += 1
        else:
            found["read"] += 1
            assert math.isfinite(whole.get_quantile(0.5))

    assert min(found["refused"], found["read"]) > 100


def test_each_value_is_in_one_bin() -> None:
    ends, counts = zip(*bins(of([float(number) for number in range(9)]), 3), strict=True)

    assert ends == pytest.approx((8 / 3, 16 / 3, 8.0))
    assert counts == (3, 3, 3)
    assert bins(of([2.0, 2.0])) == [(2.0, 2)]
