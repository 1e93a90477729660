"""The documents' validator: their keys and bounds, over whatever the rows have measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from esper.bench import KasminaPerformanceValidator, PerformanceValidation, PerformanceValidationContract
from esper.bench.figures import Figure
from esper.bench.row import Measurement, Row
from esper.bench.timing.blame import ArmFailedError
from esper.bench.validation import checks
from esper.bench.validation.readings import Readings
from esper.bench.validation.validator import PASSED
from esper.errors import SettingError

# Of each key of performance_metrics, as section 2.1 has them.
KEYS = {
    "kernel_loading": {"avg_load_time_ms", "max_load_time_ms", "p95_load_time_ms", "validation_passed"},
    "gradient_isolation": {"avg_isolation_time_ms", "max_isolation_time_ms", "validation_passed"},
    "knowledge_distillation": {
        "teacher_memory_gb",
        "avg_teacher_forward_ms",
        "avg_kd_loss_computation_ms",
        "memory_reduction_achieved",
        "validation_passed",
    },
    "checkpoint_overhead": {
        "baseline_time_ms",
        "checkpoint_time_ms",
        "overhead_percent",
        "within_acceptable_range",
        "target_range",
    },
    "memory_reduction": {
        "without_checkpoint_gb",
        "with_checkpoint_gb",
        "reduction_percent",
        "target_achieved",
        "target_memory_gb",
    },
    "torch_compile_stability": {
        "recompilation_count",
        "expected_recompilations",
        "avg_time_after_warmup_ms",
        "time_variance_ms",
        "stability_achieved",
    },
    "leyline_messages": {
        "avg_serialization_time_us",
        "p95_serialization_time_us",
        "avg_message_size_bytes",
        "max_message_size_bytes",
        "validation_passed",
    },
}


def timed(row: str, arm: str, samples: Sequence[float], stat: str = "p50") -> Figure:
    return Figure(row, arm, stat, samples[0], "ms", len(samples), samples=samples)


def counted(row: str, arm: str, stat: str, value: float, shape: str = "") -> Figure:
    return Figure(row, arm, stat, value, "MB", 1, shape=shape)


# What the rows are made to have measured: everything within the documents' bounds.
SOUND = [
    timed("kernel-load", "pool to slot", [0.05] * 19 + [0.45]),
    timed("gradient-isolation", "two seeds training", [4.0, 5.0]),
    timed("gradient-isolation", "seeds, nothing between", [3.0, 3.0]),
    timed("message-state", "serialise", [0.5] * 20),
    counted("message-kinds", "system state, sealed", "count", 253.0),
    timed("teacher-forward", "teacher", [3.0, 5.0]),
    timed("kd-loss", "StaticKDLoss", [1.0, 1.5]),
    counted("teacher-memory", "full", "held", 6_000.0),
    counted("teacher-memory", "full", "new in a forward", 500.0),
    counted("teacher-memory", "int8", "held, of float16", 0.505),
    timed("checkpoint-overhead", "plain", [10.0, 10.0, 900.0]),
    timed("checkpoint-overhead", "checkpointed", [12.0, 12.0, 12.0]),
    counted("checkpoint-memory", "plain", "new, gradients flow", 10.0, "blocks"),
    counted("checkpoint-memory", "checkpointed", "new, gradients flow", 7.5, "blocks"),
    counted("checkpoint-memory", "plain", "new, gradients flow", 200.0, "large"),
    counted("checkpoint-memory", "checkpointed", "new, gradients flow", 100.0, "large"),
    counted("compile-stability", "all", "recompiles", 6.0),
    timed("compile-stability", "all", [9.0, 10.0, 11.0], "spread of a step"),
    counted("gc-allocations", "system state, open", "count", 1.0),
    counted("kd-convergence", "with KD", "ratio", 1.2),
]


def rows(figures: Sequence[Figure]) -> Mapping[str, Row]:
    """One row for each name in SOUND, which gives those of these figures that are its own."""

    def measured(name: str) -> list[Figure]:
        return [figure for figure in figures if figure.row == name]

    names = {figure.row for figure in SOUND}
    return {name: Measurement(name, "planted", lambda _, name=name: measured(name)) for name in names}  # type: ignore[misc]


def instead(figure: Figure) -> list[Figure]:
    """Sound ones, but for this."""
    of = (figure.row, figure.arm, figure.stat, figure.shape)
    return [*(each for each in SOUND if (each.row, each.arm, each.stat, each.shape) != of), figure]


def test_a_report_has_the_documents_keys_and_passes_where_every_bound_is_met() -> None:
    report = KasminaPerformanceValidator(rows=rows(SOUND)).generate_performance_report()

    assert report["overall_validation_passed"]
    assert all(report["individual_validations"].values()) and {*report["individual_validations"]} == {*KEYS}
    assert all(keys <= {*report["performance_metrics"][name]} for name, keys in KEYS.items())
    assert report["leyline_benefits_achieved"]["message_size_reduction"].startswith("253 bytes; not measured")
    assert report["c024_kd_benefits_achieved"]["student_convergence"] == "1.2 times the steps"


def test_figures_are_what_the_samples_come_to() -> None:
    metrics = KasminaPerformanceValidator(rows=rows(SOUND)).generate_performance_report()["performance_metrics"]

    assert metrics["kernel_loading"]["avg_load_time_ms"] == pytest.approx((19 * 0.05 + 0.45) / 20)
    assert metrics["kernel_loading"]["max_load_time_ms"] == 0.45
    assert metrics["gradient_isolation"]["avg_isolation_time_ms"] == pytest.approx(1.5)  # of 4 - 3 and 5 - 3
    assert metrics["knowledge_distillation"]["teacher_memory_gb"] == pytest.approx(6.5)
    assert metrics["knowledge_distillation"]["memory_reduction_achieved"] == "49.5%"
    assert metrics["checkpoint_overhead"]["overhead_percent"] == pytest.approx(20.0)
    assert metrics["memory_reduction"]["reduction_percent"] == pytest.approx(50.0)
    assert metrics["memory_reduction"]["reduction_percent_of_blocks"] == pytest.approx(25.0)
    assert metrics["torch_compile_stability"]["time_variance_ms"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("kernel_loading", timed("kernel-load", "pool to slot", [0.05] * 199 + [0.51])),
        ("kernel_loading", timed("kernel-load", "pool to slot", [0.11] * 20)),
        ("gradient_isolation", timed("gradient-isolation", "two seeds training", [4.0, 15.5])),
        ("leyline_messages", timed("message-state", "serialise", [81.0] * 20)),
        ("leyline_messages", counted("message-kinds", "system state, sealed", "count", 281.0)),
        ("knowledge_distillation", timed("teacher-forward", "teacher", [12.5, 12.5])),
        ("knowledge_distillation", counted("teacher-memory", "full", "held", 7_600.0)),
        ("checkpoint_overhead", timed("checkpoint-overhead", "checkpointed", [12.6, 12.6, 12.6])),
        ("memory_reduction", counted("checkpoint-memory", "checkpointed", "new, gradients flow", 111.0, "large")),
        ("torch_compile_stability", counted("compile-stability", "all", "recompiles", 7.0)),
        ("torch_compile_stability", timed("compile-stability", "all", [6.0, 10.0, 14.0], "spread of a step")),
    ],
)
def test_one_bound_that_is_not_met_fails_its_validation_alone(name: str, figure: Figure) -> None:
    readings = Readings()
    readings.add(instead(figure))

    metrics = {each: getattr(checks, each)(readings) for each in KEYS}

    assert [each for each in KEYS if not any(metrics[each].get(key) for key in PASSED)] == [name]


def test_what_was_not_measured_fails_and_is_none() -> None:
    unmeasured = Figure("teacher-memory", "full", "held", None, "MB", label="not measured: no room")
    validator = KasminaPerformanceValidator(rows=rows(instead(unmeasured)))

    assert not validator.validate_kd_performance()

    assert validator.performance_metrics["knowledge_distillation"]["teacher_memory_gb"] is None
    assert validator.validation_results == {"knowledge_distillation": False}


def test_a_row_that_fails_is_an_error_and_no_failed_validation() -> None:
    def broken(_: object) -> list[Figure]:
        raise OSError("disk full")

    validator = KasminaPerformanceValidator(rows={"kernel-load": Measurement("kernel-load", "planted", broken)})

    with pytest.raises(ArmFailedError, match="disk full"):
        validator.validate_kernel_loading_performance()
    assert validator.validation_results == {}


def test_a_row_that_there_is_not_is_named() -> None:
    with pytest.raises(SettingError, match="kernel-load"):
        KasminaPerformanceValidator(rows={}).validate_kernel_loading_performance()


def test_both_classes_in_one_keep_the_contract_and_tell_each_figure() -> None:
    told = list[Figure]()
    validation: PerformanceValidationContract = PerformanceValidation(rows=rows(SOUND), on_figure=told.append)

    assert validation.validate_memory_reduction()

    assert [figure.value for figure in told] == [10.0, 7.5, 200.0, 100.0]
    numbers = validation.get_performance_metrics()
    assert numbers["checkpoint-memory, plain, new, gradients flow, large"] == 200.0
    assert len(numbers) == 4
