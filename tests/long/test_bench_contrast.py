"""Two runs apart: what they can be compared by."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from esper.bench.history.contrast import contrasts, missing
from tests.figure_kit import absent, beside, results, timed


def test_ratios_to_each_runs_own_reference_are_blind_to_a_slower_hour() -> None:
    one = results(timed(), beside(1.2))
    slow = [replace(figure, value=2 * (figure.value or 0.0)) for figure in one.figures]

    [_, found] = contrasts(one, results(*slow))

    assert found.values == 2.0
    assert found.ratios is not None and found.ratios.ratio == pytest.approx(1.0)


def test_the_interval_of_two_runs_is_wider_than_that_of_either() -> None:
    [found] = contrasts(results(beside(1.2)), results(beside(1.8)))

    assert found.ratios is not None
    half = math.hypot(math.log(1.0 / 0.95), math.log(1.05))
    assert found.ratios.ratio == pytest.approx(1.5)
    assert found.ratios.low == pytest.approx(1.5 * math.exp(-half))
    assert found.ratios.high == pytest.approx(1.5 * math.exp(half))
    assert found.ratios.verdict is None


def test_an_interval_without_an_end_makes_no_ratio() -> None:
    endless = beside(1.2)
    assert endless.vs is not None

    [found] = contrasts(results(beside(1.2)), results(replace(endless, vs=replace(endless.vs, high=math.inf))))

    assert found.ratios is None


def test_tails_and_what_was_not_measured_are_not_compared() -> None:
    tail = replace(timed(), stat="p99")

    [found] = contrasts(results(tail, absent()), results(tail, absent()))

    assert (found.one.row, found.values, found.ratios) == ("memory", None, None)


def test_rows_that_one_run_lacks_are_named() -> None:
    assert missing(results(timed(), timed("fold"), absent()), results(timed())) == ["fold", "memory"]
