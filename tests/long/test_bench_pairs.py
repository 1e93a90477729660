"""What is taken, and what is said of it: on calls whose times a seeded generator makes up."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from esper.bench.arm import Arm, Ready
from esper.bench.effort import EFFORTS, Effort
from esper.bench.figures import Figure
from esper.bench.row import Comparison, Goal
from esper.bench.runner import run
from esper.bench.statistics.samples import interval, outliers
from esper.bench.statistics.summary import figures_of
from esper.bench.timing.comparing import paired, warm_up
from esper.bench.timing.pairs import WARM_UP, WARM_UP_MAX, Taken, Watch, take
from tests.bench_kit import BRIEF, arm, nothing, row, told

MS = 1e-3
SIXTY = replace(BRIEF, min_pairs=60, max_pairs=60)


def jittery(median: float, seed: int, spread: float = 0.05) -> Callable[[], float]:
    """Lognormal times."""
    draw = np.random.default_rng(seed)
    return lambda: float(median * np.exp(draw.normal(0.0, spread)))


def compared(arms: Mapping[str, Callable[[], float]], effort: Effort = SIXTY) -> tuple[Figure, ...]:
    made_up = row(*(arm(name, nothing) for name in arms))
    return tuple(figures_of(made_up, paired(made_up, arms, effort).samples))


def verdict(figures: tuple[Figure, ...], name: str) -> str:
    ratio = told(figures, name, "p50").vs
    assert ratio is not None
    return str(ratio.verdict)


def test_a_slow_down_of_a_tenth_and_a_speed_up_are_told_from_equal_arms() -> None:
    for seed in range(10):
        figures = compared(
            {name: jittery(at * MS, 4 * seed + n) for n, (name, at) in enumerate([("a", 1), ("b", 1.1), ("c", 0.9)])}
        )

        assert [verdict(figures, name) for name in ("a again", "b", "c")] == ["indistinguishable", "slower", "faster"]


def test_of_sixty_tries_of_equal_arms_at_most_one_is_told_apart() -> None:
    wrong = 0
    for seed in range(60):
        figures = compared({"a": jittery(MS, 2 * seed, spread=0.2), "b": jittery(MS, 2 * seed + 1, spread=0.2)})
        wrong += verdict(figures, "b") != "indistinguishable"

    assert wrong <= 1


def test_what_slows_the_whole_machine_for_a_while_drops_out() -> None:
    calls = iter(range(10_000_000))

    def drifting(times: Callable[[], float]) -> Callable[[], float]:
        return lambda: times() * (1.0 + (next(calls) % 300) / 300)

    arms = {"a": drifting(jittery(MS, 1, 0.01)), "b": drifting(jittery(1.1 * MS, 2, 0.01))}
    samples = paired(row(*(arm(name, nothing) for name in arms)), arms, SIXTY).samples
    together, apart = (interval(samples["b"], base) for base in (samples["a"], samples["a"][::-1]))

    assert together[0] < 1.1 < together[1]
    assert together[1] - together[0] < 0.5 * (apart[1] - apart[0])


def test_rounds_go_on_until_the_interval_is_narrow_or_there_are_the_most() -> None:
    effort = Effort("quick", 30, 400, 0.02, 60.0)

    num = {
        spread: told(compared({"a": jittery(MS, 1, spread), "b": jittery(MS, 2, spread)}, effort), "b", "p50").num
        for spread in (0.001, 0.03, 0.5)
    }

    assert num[0.001] == 30 and 30 < num[0.03] < 400 and num[0.5] == 400


def test_no_time_is_too_short_for_the_least_rounds() -> None:
    assert told(compared({"a": jittery(MS, 1)}, replace(BRIEF, seconds=0.0)), "a", "p50").num == 30


def test_a_goal_of_the_tail_has_rounds_taken_for_it() -> None:
    wide = replace(row(arm("a", nothing)), goals=(Goal("a", "p99", 1.0),))

    taken = paired(wide, {"a": jittery(MS, 1, 0.0001)}, EFFORTS["quick"])

    assert len(taken.samples["a"]) == 100


def test_a_percentile_that_takes_more_samples_says_so() -> None:
    figures = compared({"a": jittery(MS, 1)}, BRIEF)

    assert told(figures, "a", "p99").label == "not measured: 30 samples, a p99 needs 100"
    assert told(figures, "a", "p95").value is not None


def test_each_round_calls_every_arm_once_in_an_order_that_is_drawn() -> None:
    order = list[str]()

    def named(name: str) -> Callable[[], float]:
        times = jittery(MS, 1)

        def call() -> float:
            order.append(name)
            return times()

        return call

    taken = paired(row(arm("a", nothing), arm("b", nothing)), {"a": named("a"), "b": named("b")}, BRIEF)

    rounds = [tuple(order[at : at + 3]) for at in range(0, len(order), 3)]
    assert len(rounds) == taken.num_warm + 30
    assert {tuple(sorted(each)) for each in rounds} == {("a", "a", "b")}
    assert len({*rounds}) == 3


def warmed(times: Callable[[int], float]) -> Taken:
    """A call whose time depends on how many there were."""
    calls, noise = iter(range(1_000_000)), jittery(1.0, 3, 0.01)
    return take({"a": lambda: times(next(calls)) * noise()}, Watch("a", []), BRIEF)


def test_calls_that_still_get_faster_are_no_samples() -> None:
    taken = warmed(lambda at: MS * max(1.0, 3.0 - 0.1 * at))

    assert taken.num_warm >= 20 and taken.is_warm
    assert max(taken.samples["a"]) < 1.2 * MS


def test_five_calls_are_warm_up_where_nothing_gets_faster_and_a_slow_first_one_is_one_of_them() -> None:
    assert warmed(lambda at: MS if at else 50 * MS).num_warm <= WARM_UP + 3


def test_a_warm_up_that_never_ends_is_ended_and_told_of() -> None:
    taken = warmed(lambda at: MS * 0.9**at)

    label = warm_up(row(arm("a", nothing)), taken).label

    assert taken.num_warm == WARM_UP_MAX
    assert label == f"not measured: calls still got faster or slower after {WARM_UP_MAX} rounds of warm-up"


def test_outliers_are_counted_and_stay_among_the_samples() -> None:
    samples = [1.0 + 0.01 * (at % 7) for at in range(98)] + [9.0, 0.1]

    figures = tuple(figures_of(row(arm("a", nothing)), {"a": samples, "a again": samples}))

    assert outliers(samples) == 2 == told(figures, "a", "outliers").value
    assert len(told(figures, "a", "p50").samples) == 100 and told(figures, "a", "p99").value == pytest.approx(
        np.percentile(np.array(samples) * 1e3, 99)
    )


def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    draw = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        shared = draw.normal(0.0, 0.3, 60)
        ours, theirs = (np.exp(shared + draw.normal(0.0, 0.1, 60)) for _ in range(2))
        low, high = interval(1.3 * ours, theirs, resamples=400)
        hits += low <= 1.3 <= high

    assert hits >= 180


def test_the_machines_limit_is_a_figure_of_the_reference_and_gets_no_verdict() -> None:
    made_up = replace(row(arm("ours", nothing), arm("copy", nothing)), limit="copy")
    times = {"ours": [2.0 * MS] * 30, "ours again": [2.0 * MS] * 30, "copy": [0.5 * MS] * 30}

    figures = tuple(figures_of(made_up, times))

    per = told(figures, "ours", "per limit")
    assert (per.value, per.unit, per.label) == (4.0, "x", "derived")
    assert verdict(figures, "copy") == "None"


def test_goals_are_attached_to_the_figures_that_they_are_of() -> None:
    goals = (Goal("b", "ratio", 1.5, 1.2, gate=True), Goal("b", "p50", 1.0), Goal("a", "max", 3.0))
    made_up: Comparison = replace(row(arm("a", nothing), arm("b", nothing)), goals=goals)
    times = {"a": [1.0 * MS] * 30, "a again": [1.0 * MS] * 30, "b": [2.0 * MS] * 30}

    figures = tuple(figures_of(made_up, times))

    assert [told(figures, "b", stat).met for stat in ("ratio", "p50")] == [False, False]
    assert (told(figures, "b", "ratio").value, told(figures, "b", "ratio").gate) == (2.0, True)
    assert told(figures, "a", "max").met is True


def test_the_load_runs_from_before_the_first_call_to_the_end_and_what_runs_before_a_call_is_untimed() -> None:
    log = list[str]()

    def load() -> Callable[[], object]:
        log.append("load")
        return lambda: log.append("over")

    ready = Ready(lambda: log.append("call"), before=lambda: log.append("before"), close=lambda: log.append("close"))

    figures = run([replace(row(Arm("a", lambda: ready)), load=load)], BRIEF).figures

    assert log[:3] == ["load", "before", "call"] and log[-2:] == ["over", "close"]
    assert log[1:-2:2] == ["before"] * log.count("call")
    assert told(figures, "a", "p50").num == 30


def test_the_collector_is_on_while_calls_are_timed_and_nothing_stays_frozen() -> None:
    gc.unfreeze()  # what the suite holds frozen
    frozen = gc.get_freeze_count()
    seen = list[tuple[bool, bool]]()

    def look() -> None:
        if len(seen) < 5:
            seen.append((gc.isenabled(), gc.get_freeze_count() > frozen))

    run([row(arm("a", look))], BRIEF)

    assert seen[1:] == [(True, True)] * 4 and gc.get_freeze_count() == frozen
