"""How steady a compiled host's steps are is told apart from what the seeds in them cost."""

from __future__ import annotations

import statistics

import pytest
import torch

from esper.bench.figures import Figure
from esper.bench.work.recompiling import NUM_WARM, Stretch, figures

WARM = [900.0] * NUM_WARM


def spread_of(*times_ms: list[float]) -> Figure:
    found = [Stretch(f"change {at}", 0, WARM + times, torch.zeros(1)) for at, times in enumerate(times_ms)]
    (spread,) = [figure for figure in figures(found, "") if figure.stat == "spread of a step"]
    return spread


def test_steps_that_take_twice_as_long_with_a_seed_are_as_steady() -> None:
    spread = spread_of([5.0] * 20, [10.0] * 20)

    assert spread.value == pytest.approx(0.0, abs=1e-12)
    assert spread.met is True


def test_steps_that_differ_after_one_change_are_unsteady() -> None:
    shaky = [5.0, 15.0] * 10

    spread = spread_of([2.0] * 20, shaky)

    # Of shares of a stretch's own mean, by hand: twenty of 1, ten of 0.5 and ten of 1.5.
    assert spread.value == pytest.approx(statistics.stdev([1.0] * 20 + [0.5, 1.5] * 10))
    assert spread.met is False
