"""A soak's drift is a slope with an interval, which neither outliers nor a new process can make."""

from __future__ import annotations

import random

import pytest

from esper.bench.soak.drift import drift
from esper.bench.statistics.paired import mean_of, ratio_of_means


def noisy(num: int, slope: float, level: float = 100.0) -> tuple[list[float], list[float]]:
    draw = random.Random(1)
    hours = [at / 100 for at in range(num)]
    return hours, [level + slope * hour + draw.gauss(0, 1) for hour in hours]


def test_a_slope_is_found_within_its_interval() -> None:
    hours, values = noisy(1_000, slope=2.0)

    found = drift(hours, values, [1] * 1_000)

    assert found is not None
    assert found.low < 2.0 < found.high
    assert found.high - found.low < 0.2
    assert found.end_to_start()[0] == pytest.approx(1 + 2.0 * 9.99 / 100, rel=0.02)


def test_where_nothing_drifts_the_interval_holds_zero() -> None:
    hours, values = noisy(1_000, slope=0.0)

    found = drift(hours, values, [1] * 1_000)

    assert found is not None and found.low < 0 < found.high


def test_one_sample_in_ten_that_is_far_off_moves_the_slope_little() -> None:
    hours, values = noisy(1_000, slope=2.0)
    spoilt = [value + 1e4 * (at % 10 == 0) for at, value in enumerate(values)]

    found = drift(hours, spoilt, [1] * 1_000)

    assert found is not None and found.slope == pytest.approx(2.0, abs=0.2)


def test_what_a_new_process_holds_at_its_start_is_no_drift() -> None:
    hours, values = noisy(1_000, slope=0.0)
    later = [value + 50.0 * (at >= 500) for at, value in enumerate(values)]

    found = drift(hours, later, [1 + (at >= 500) for at in range(1_000)])

    assert found is not None and found.low < 0 < found.high


def test_too_few_samples_have_no_slope() -> None:
    assert drift([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [1, 1, 1]) is None


def test_a_paired_ratio_has_students_interval_of_the_logarithms() -> None:
    found = ratio_of_means([2.0, 4.0, 8.0], [1.0, 2.0, 8.0], "without")

    assert found.ratio == pytest.approx(4 ** (1 / 3))  # of 2, 2 and 1
    assert found.low < 1.0 < found.ratio < found.high
    assert mean_of([1.0, 2.0, 3.0]) == pytest.approx((2 - 4.302653 / 3**0.5, 2.0, 2 + 4.302653 / 3**0.5))
