"""Arms of the rows on distillation come to the same before they are timed, and say what they found."""

from __future__ import annotations

from functools import cache

import pytest

from esper.bench.effort import Effort
from esper.bench.registry import chosen, registered
from esper.bench.results import Results
from esper.bench.row import Comparison
from esper.bench.runner import run

TWICE = Effort("quick", min_pairs=2, max_pairs=2, width=1.0, seconds=0.0)


@cache
def results(*names: str) -> Results:
    return run(chosen(names, registered()), TWICE)


ROWS = ("teacher-forward", "int8-teacher", "teacher-load", "kd-loss", "checkpoint-overhead", "training-throughput-kd")


@pytest.mark.parametrize("row", ROWS)
def test_all_arms_agree_and_each_has_its_median(row: str) -> None:
    found = results(row)

    assert found.failures == ()
    assert len({figure.arm for figure in found.figures if figure.stat == "p50" and figure.value}) >= 4


def test_throughput_is_the_batch_over_the_median_and_asked_to_keep_85_percent() -> None:
    figures = {(figure.arm, figure.stat): figure for figure in results("training-throughput-kd").figures}

    without, taught = figures["without KD", "rate"], figures["with KD", "rate"]
    step_ms = figures["with KD", "p50"].value
    assert step_ms and taught.value == pytest.approx(128_000 / step_ms)
    assert without.value and taught.target == pytest.approx(0.85 * without.value) and taught.higher


def test_what_is_too_heavy_for_a_quick_run_is_listed_with_its_arms() -> None:
    row = registered()["kd-loss-512x50000"]

    assert isinstance(row, Comparison) and "StaticKDLoss" in {arm.name for arm in row.arms}


def test_what_is_too_heavy_for_a_quick_run_says_so() -> None:
    figures = results("kd-loss-512x50000", "checkpoint-overhead-blocks").figures

    assert {figure.label for figure in figures} == {"not measured: left out of a quick run"}
    assert any(figure.target == 2.0 for figure in figures)


def test_a_load_is_told_at_the_rate_of_the_documents_14_gb() -> None:
    figures = {(figure.arm, figure.stat): figure for figure in results("teacher-load").figures}

    found, taken_ms = figures["loaded", "p50, of 14 GB"], figures["loaded", "p50"].value
    assert found.value and taken_ms
    assert found.value == pytest.approx(taken_ms / 1e3 * 14_000 / 5.850152, rel=1e-3)
    assert (found.target, found.aspiration, found.unit) == (5.0, 3.0, "s")
