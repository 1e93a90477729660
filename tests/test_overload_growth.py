"""What the row `overload` lets Redis grow to: with what is folded, and with nothing else."""

from __future__ import annotations

import math

import pytest

from tests.faults.row import Result
from tests.faults.rows.overload import SETTLED_S, check_flat, growth

LONG_S = SETTLED_S + 1
EVEN = range(0, 1000, 100)


def test_it_may_keep_more_where_more_was_folded() -> None:
    assert growth(EVEN, LONG_S) == 1.0
    assert growth([0, 10, 20, 30, 40, 50, 60, 90, 120], LONG_S) == 60 / 30
    assert growth([0, 10, 20, 30, 60, 90, 120, 121, 122], LONG_S) == 1.0


def test_before_it_has_kept_two_minutes_it_may_grow_to_any_size() -> None:
    assert growth(EVEN, SETTLED_S) == math.inf


@pytest.mark.parametrize(("allowed", "broken"), [(1.0, 1), (1.2, 0)])
def test_what_grows_more_than_its_work_is_a_violation(allowed: float, broken: int) -> None:
    result = Result()

    check_flat(result, "redis", [1, 1, 1, 100, 100, 100, 120, 120, 120], allowed)

    assert len(result.violations) == broken
