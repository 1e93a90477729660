"""An effort that can't be is refused in one sentence, wherever it is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from esper.bench import KasminaBenchmarkSuite
from esper.bench.custom.benchmarks import BenchmarkRunner
from esper.bench.custom.implementations import PyTorchNativeBaseline
from esper.bench.effort import EFFORTS
from esper.errors import SettingError

CONFIG = {"batch_size": 1, "sequence_length": 4, "d_model": 4, "num_heads": 1}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"min_pairs": 1}, "pairs of calls at least is 1; expected 2 or more: a ratio has an interval"),
        ({"max_pairs": 29}, "pairs of calls at most is 29; expected as many as at least, 30"),
        ({"seconds": -1.0}, "seconds of a row is -1.0; expected a number, 0 or more"),
        ({"width": float("nan")}, "width of an interval is nan; expected a number, 0 or more"),
    ],
)
def test_an_effort_that_can_not_be_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        replace(EFFORTS["quick"], **changes)


@pytest.mark.parametrize("trials", [0, 1])
def test_one_trial_makes_no_interval(trials: int) -> None:
    runner = BenchmarkRunner()
    runner.register_baseline(PyTorchNativeBaseline())

    with pytest.raises(SettingError, match=f"pairs of calls at least is {trials}; expected 2 or more"):
        runner.run_benchmark("Custom_Test", "inference", CONFIG, trials)
    with pytest.raises(SettingError, match=f"pairs of calls at least is {trials}; expected 2 or more"):
        KasminaBenchmarkSuite().run_kernel_loading_benchmark(iterations=trials)
