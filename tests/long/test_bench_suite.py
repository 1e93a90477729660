"""The documents' benchmark suite: their keys, so many rounds as they ask for, and what it makes of earlier runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from esper.bench import KasminaBenchmarkSuite
from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.history.store import Store
from esper.bench.row import Measurement, Row
from esper.bench.soak.soaked import Sample, Soaked
from esper.bench.validation.outcomes import stability

LOADING = {
    "mean_load_time_ms",
    "median_load_time_ms",
    "p95_load_time_ms",
    "p99_load_time_ms",
    "min_load_time_ms",
    "max_load_time_ms",
    "std_dev_ms",
    "cache_hit_rate",
    "total_iterations",
}
STABILITY = {
    "test_duration_hours",
    "total_iterations",
    "error_count",
    "error_rate",
    "memory_metrics",
    "performance_metrics",
    "gc_metrics",
    "stability_passed",
}

Samples = Callable[[Effort], list[float]]


def planted(name: str, arms: Mapping[str, Samples], stat: str = "p50") -> dict[str, Row]:
    """A row whose arms give these samples."""

    def measure(effort: Effort) -> list[Figure]:
        found = {arm: samples(effort) for arm, samples in arms.items()}
        return [Figure(name, arm, stat, min(each), "ms", len(each), samples=each) for arm, each in found.items()]

    return {name: Measurement(name, "planted", measure)}


def loading(ms: float) -> dict[str, Row]:
    return planted("kernel-load", {"pool to slot": lambda effort: [ms] * effort.min_pairs})


def serialising(ms: float) -> dict[str, Row]:
    sizes = {"system state": 253.0, "adaptation command": 217.0, "telemetry packet": 220.0}
    counted = [Figure("message-kinds", f"{name}, sealed", "count", size, "bytes", 1) for name, size in sizes.items()]
    rows: dict[str, Row] = {"message-kinds": Measurement("message-kinds", "planted", lambda _: counted)}
    for name in ("message-state", "message-command", "message-packet"):
        rows |= planted(name, {"serialise": lambda effort: [ms] * effort.min_pairs})
    return rows


def soaked(memory: Callable[[int], float], errors: int = 0, num: int = 400) -> Soaked:
    """A sample every thirty-six seconds, fifty steps each."""
    return Soaked(
        tuple(
            Sample(1, at / 100, memory(at), 5.0, 50 * at, at, 0, errors if at == num else 0, 10)
            for at in range(1, num + 1)
        ),
        num / 100,
        False,
    )


def test_as_many_rounds_are_played_as_iterations_were_asked_for() -> None:
    suite = KasminaBenchmarkSuite(rows=loading(0.05))

    found = suite.run_kernel_loading_benchmark(iterations=120)

    assert {*found} == LOADING
    assert (found["total_iterations"], found["cache_hit_rate"]) == (120, 1.0)
    assert found["median_load_time_ms"] == found["p99_load_time_ms"] == 0.05
    assert found["std_dev_ms"] == pytest.approx(0.0)


def test_a_percentile_that_takes_more_samples_is_not_made_up() -> None:
    found = KasminaBenchmarkSuite(rows=loading(0.05)).run_kernel_loading_benchmark(iterations=40)

    assert found["p95_load_time_ms"] == 0.05
    assert found["p99_load_time_ms"] is None


def test_isolation_is_the_difference_between_arms_of_the_same_round() -> None:
    rows = planted("isolation-memory", {"two seeds training": lambda _: [2.5]}, "new in a pass") | planted(
        "gradient-isolation",
        {"two seeds training": lambda _: [9.0, 4.0], "seeds, nothing between": lambda _: [8.0, 2.0]},
    )

    found = KasminaBenchmarkSuite(rows=rows).run_gradient_isolation_benchmark(iterations=2)

    assert (found["mean_isolation_time_ms"], found["max_isolation_time_ms"]) == (1.5, 2.0)
    assert found["mean_memory_usage_mb"] == 2.5


@pytest.mark.parametrize(("us", "compliant"), [(0.5, True), (81.0, False)])
def test_compliance_is_judged_over_three_kinds_of_message(us: float, compliant: bool) -> None:
    found = KasminaBenchmarkSuite(rows=serialising(us)).run_leyline_serialization_benchmark(iterations=120_000)

    assert found["mean_serialization_time_us"] == pytest.approx(us)
    assert found["mean_message_size_bytes"] == pytest.approx((253 + 217 + 220) / 3)
    assert found["max_message_size_bytes"] == 253.0
    assert found["leyline_option_b_compliance"] == {
        "serialization_target_met": compliant,
        "size_target_met": True,
        "p95_serialization_target_met": True,
    }


def test_a_steady_soak_passes_with_the_documents_keys() -> None:
    found = stability(soaked(lambda at: 500.0 + at % 3))

    assert {*found} == STABILITY
    assert found["stability_passed"] and found["error_rate"] == 0.0
    assert found["total_iterations"] == 400 * 50
    assert abs(found["memory_metrics"]["memory_drift_percent"]) < 1


def test_memory_that_grows_by_a_fifth_does_not_pass() -> None:
    found = stability(soaked(lambda at: 500.0 * (1 + 0.2 * at / 400)))

    assert found["memory_metrics"]["memory_drift_percent"] == pytest.approx(20, abs=1)
    assert not found["memory_metrics"]["fragmentation_acceptable"]
    assert found["performance_metrics"]["performance_stable"]
    assert not found["stability_passed"]


def test_one_error_in_a_thousand_steps_does_not_pass() -> None:
    assert not stability(soaked(lambda _: 500.0, errors=20))["stability_passed"]
    assert stability(soaked(lambda _: 500.0, errors=19))["stability_passed"]


def test_a_soak_too_short_for_a_slope_does_not_pass() -> None:
    found = stability(soaked(lambda _: 500.0, num=2))

    assert found["memory_metrics"]["memory_drift_percent"] is None
    assert not found["stability_passed"]


def test_health_is_that_of_everything_that_should_have_been_measured() -> None:
    suite = KasminaBenchmarkSuite(rows=loading(0.05) | serialising(0.5))
    before = suite.assess_overall_performance()
    suite.run_kernel_loading_benchmark(iterations=30)

    assert before == "no_data"
    assert suite.assess_overall_performance() == "critical"  # four others are missing

    suite.benchmark_results |= {
        "gradient_isolation": {"p95_isolation_time_ms": 1.0},
        "leyline_serialization": suite.run_leyline_serialization_benchmark(iterations=1),
        "knowledge_distillation": {"mean_memory_gb": 0.1},
        "48hour_stability": {"stability_passed": True},
    }
    assert suite.assess_overall_performance() == "healthy"

    suite.benchmark_results["gradient_isolation"]["p95_isolation_time_ms"] = 8.0
    assert suite.assess_overall_performance() == "warning"


def test_without_earlier_runs_there_is_no_baseline(tmp_path: Path) -> None:
    suite = KasminaBenchmarkSuite(rows=loading(0.05), store=Store(tmp_path))
    suite.run_kernel_loading_benchmark(iterations=30)
    suite.run_kernel_loading_benchmark(iterations=30)

    assert KasminaBenchmarkSuite(rows=loading(0.05)).check_for_regressions() == {"no_baseline": True}
    assert suite.check_for_regressions() == {"no_baseline": True}


def test_a_row_that_is_slower_twice_running_is_a_regression(tmp_path: Path) -> None:
    def run(ms: float) -> dict[str, bool]:
        suite = KasminaBenchmarkSuite(rows=loading(ms), store=Store(tmp_path))
        suite.run_kernel_loading_benchmark(iterations=30)
        return suite.check_for_regressions()

    for at in range(6):
        run(0.05 + at % 2 / 1000)

    assert run(0.1) == {"kernel-load": False}
    assert run(0.1) == {"kernel-load": True}
    assert run(0.05) == {"kernel-load": False}
