"""A goal may be of the ratio of tails, which takes as many samples as a tail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from esper.bench.row import Goal
from esper.bench.statistics.summary import figures_of
from tests.bench_kit import arm, nothing, row, told

ROW = replace(row(arm("bare", nothing), arm("ours", nothing)), goals=(Goal("ours", "p99 ratio", 1.05),))


def samples(num: int) -> dict[str, list[float]]:
    """Ours is as quick as the bare one, but for its slowest two in a hundred, which take 1.5 times as long."""
    times = [1e-3 * (1 + at % 100 / 1e4) for at in range(num)]
    slow = [time * (1.5 if at % 100 >= 98 else 1.0) for at, time in enumerate(times)]
    return {"bare": times, "ours": slow, "bare again": times}


def test_the_ratio_of_tails_is_told_beside_its_target() -> None:
    figures = tuple(figures_of(ROW, samples(1_000)))

    found = told(figures, "ours", "p99 ratio")
    assert found.value == pytest.approx(1.5, rel=0.01)
    assert (found.unit, found.met) == ("x", False)
    assert told(figures, "ours", "p50").vs is not None
    assert found.vs is not None and found.vs.low > 1.0


def test_of_too_few_samples_there_is_no_ratio_of_tails() -> None:
    found = told(tuple(figures_of(ROW, samples(99))), "ours", "p99 ratio")

    assert (found.value, found.label) == (None, "not measured: 99 samples, a p99 needs 100")
