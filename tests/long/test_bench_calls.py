"""Calls too short for the clock: many to a sample, and every figure of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from esper.bench.arm import Arm, Ready
from esper.bench.registry import registered
from esper.bench.revisions.interleaved import lacks
from esper.bench.row import Comparison, Goal
from esper.bench.runner import run
from esper.bench.statistics.summary import figures_of
from esper.bench.timing.opened import opened, samplers
from tests.bench_kit import BRIEF, arm, nothing, row, told


def test_a_sample_makes_so_many_calls_and_says_so() -> None:
    calls = list[int]()
    many = replace(row(arm("a", lambda: calls.append(0))), calls=50, shape="ten numbers")

    figures = run([many], BRIEF).figures

    num_rounds = told(figures, "all", "warm-up").num + BRIEF.min_pairs
    assert len(calls) == 1 + 2 * 50 * num_rounds  # once to agree; then in each round the arm and its control
    assert {figure.shape for figure in figures} == {"ten numbers; each sample the mean of 50 calls"}


def test_an_arm_too_short_for_the_clock_makes_many_calls_of_its_own() -> None:
    short, long = list[int](), list[int]()
    arms = (Arm("short", lambda: Ready(lambda: short.append(0), calls=20)), arm("long", lambda: long.append(0)))
    both = row(*arms)

    with opened(both, arms) as ready:
        taken = {name: sample() for name, sample in samplers(both, ready).items()}

    assert (len(short), len(long)) == (20, 1)
    assert taken["short"] > 0.0


def test_the_time_of_such_an_arm_is_of_one_call() -> None:
    moments = iter([0, 4_000_000_000])
    ready = Ready(nothing, calls=4)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.perf_counter_ns", lambda: next(moments))
        [sample] = samplers(row(), {"short": ready}).values()
        found = sample()

    assert found == 1.0


def test_a_figure_is_of_one_call_in_the_unit_of_its_row() -> None:
    goal = Goal("a", "p50", 3.0, gate=True)
    many = replace(row(arm("a", nothing)), calls=1_000, unit="us", goals=(goal,))

    figures = tuple(figures_of(many, {"a": [0.002] * 30, "a again": [0.004] * 30}))

    median, control = told(figures, "a", "p50"), told(figures, "a again", "p50")
    assert (median.unit, median.met) == ("us", True)
    assert median.value == pytest.approx(2.0)
    assert control.vs is not None and control.vs.ratio == pytest.approx(2.0)
    assert median.samples[0] == pytest.approx(2.0)


@pytest.mark.parametrize("name", ["message-state", "message-command", "message-packet", "breaker"])
def test_rows_of_such_calls_are_in_microseconds(name: str) -> None:
    found = registered()[name]

    assert isinstance(found, Comparison) and (found.unit, found.calls) == ("us", 1_000)


def test_revisions_whose_samples_are_of_other_numbers_of_calls_are_not_compared() -> None:
    of: dict[str, object] = {"arms": ["a"], "missing": {}}

    assert lacks({**of, "calls": 1}, "a", 1_000) == "there a sample has 1 calls, not 1,000"
    assert lacks({**of, "calls": 1_000}, "a", 1_000) == lacks(of, "a", 1_000) == ""
