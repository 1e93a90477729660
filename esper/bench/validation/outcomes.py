"""The documents' benchmarks as functions of what was measured, with their keys.

Section 3.1 of the performance-validation seed. What is unmeasured is None.
"""

from __future__ import annotations

from typing import Any

from esper.bench.rows.distillation import BATCH
from esper.bench.rows.wire import SERIALISED
from esper.bench.soak.drift import Drift
from esper.bench.soak.soaked import MOST_ERRORS, Soaked
from esper.bench.validation.checks import GIGA, checkpoint_mb, isolation_ms, teacher_gb
from esper.bench.validation.readings import Readings, Spread, below

MEMORY_PERCENT, TIME_PERCENT = 10.0, 15.0
Outcome = dict[str, Any]


def kernel_loading(read: Readings) -> Outcome:
    """From the pool into a slot, milliseconds. Each load is a hit: the set-up puts the kernel there."""
    spread = Spread(read.samples("kernel-load", "pool to slot"))
    return {
        "mean_load_time_ms": spread.mean,
        "median_load_time_ms": spread.median,
        "p95_load_time_ms": spread.p95,
        "p99_load_time_ms": spread.p99,
        "min_load_time_ms": spread.least,
        "max_load_time_ms": spread.most,
        "std_dev_ms": spread.deviation,
        "cache_hit_rate": 1.0 if spread.values else None,
        "total_iterations": len(spread.values),
    }


def gradient_isolation(read: Readings) -> Outcome:
    """What isolation adds to a pass with two seeds, and what a pass allocates besides the network's weights."""
    spread = Spread(isolation_ms(read))
    memory = read.value("isolation-memory", "two seeds training", "new in a pass")
    return {
        "mean_isolation_time_ms": spread.mean,
        "p95_isolation_time_ms": spread.p95,
        "max_isolation_time_ms": spread.most,
        "mean_memory_usage_mb": memory,
        "max_memory_usage_mb": memory,
        "total_iterations": len(spread.values),
    }


def leyline_serialization(read: Readings) -> Outcome:
    """Of three kinds of message; a sample is the mean of a thousand calls, a size that of the sealed message."""
    spread = Spread([each for row in SERIALISED for each in read.samples(row, "serialise")])
    sizes = [read.value("message-kinds", f"{name}, sealed", "count") for name in SERIALISED.values()]
    size = Spread([each for each in sizes if each is not None])
    return {
        "mean_serialization_time_us": spread.mean,
        "p95_serialization_time_us": spread.p95,
        "p99_serialization_time_us": spread.p99,
        "mean_message_size_bytes": size.mean,
        "max_message_size_bytes": size.most,
        "leyline_option_b_compliance": {
            "serialization_target_met": below(spread.mean, 80),
            "size_target_met": below(size.mean, 280),
            "p95_serialization_target_met": below(spread.p95, 120),
        },
    }


def knowledge_distillation(read: Readings) -> Outcome:
    """Whole steps of the documents' student beside its teacher, batches of one size."""
    times = read.samples("training-throughput-kd", "with KD")
    spread, memory = Spread(times), teacher_gb(read)
    plain, checkpointed, reduction = checkpoint_mb(read, "large")
    return {
        "mean_kd_time_ms": spread.mean,
        "p95_kd_time_ms": spread.p95,
        "mean_memory_gb": memory,
        "max_memory_gb": memory,
        "mean_throughput_samples_per_sec": Spread([BATCH / (ms / 1e3) for ms in times]).mean,
        "checkpoint_effectiveness": {
            "memory_saved_gb": None if plain is None or checkpointed is None else (plain - checkpointed) / GIGA,
            "memory_reduction_percent": reduction,
        },
        "total_iterations": len(times),
    }


def stability(soaked: Soaked) -> Outcome:
    """Drifts are slopes over the whole soak, in percent of the level at its start; None: too short to have one."""
    memory, times = soaked.drift_of("rss_mb"), soaked.drift_of("step_ms")
    steps, errors = soaked.total("steps"), soaked.total("errors")
    rate = errors / max(steps, 1)
    in_memory, in_time = within(memory, MEMORY_PERCENT), within(times, TIME_PERCENT)
    gigabytes = [each.rss_mb / GIGA for each in soaked.samples]
    step_ms = [each.step_ms for each in soaked.samples]
    collections = soaked.total("collections")
    return {
        "test_duration_hours": soaked.hours,
        "total_iterations": steps,
        "error_count": errors,
        "error_rate": rate,
        "memory_metrics": {
            "initial_memory_gb": gigabytes[0] if gigabytes else None,
            "final_memory_gb": gigabytes[-1] if gigabytes else None,
            "memory_drift_percent": percent(memory),
            "max_memory_gb": max(gigabytes, default=None),
            "fragmentation_acceptable": in_memory,
        },
        "performance_metrics": {
            "initial_time_ms": step_ms[0] if step_ms else None,
            "final_time_ms": step_ms[-1] if step_ms else None,
            "performance_degradation_percent": percent(times),
            "mean_time_ms": Spread(step_ms).mean,
            "performance_stable": in_time,
        },
        "gc_metrics": {
            "total_collections": collections,
            "collections_per_hour": collections / soaked.hours if soaked.hours else None,
        },
        "stability_passed": bool(steps) and rate < MOST_ERRORS and in_memory and in_time,
    }


def percent(found: Drift | None) -> float | None:
    return None if found is None else (found.end_to_start()[0] - 1.0) * 100


def within(found: Drift | None, bound: float) -> bool:
    """Either way: what shrinks is not steady either."""
    value = percent(found)
    return value is not None and abs(value) < bound


def issues(results: dict[str, Outcome]) -> list[str]:
    """What is not as it should be, by the documents' names; what was not measured is not as it should be."""
    of = {name: results.get(name, {}) for name in NAMES}
    compliance = of["leyline_serialization"].get("leyline_option_b_compliance", {"measured": False})
    sound = {
        "kernel_loading_slow": below(of["kernel_loading"].get("p95_load_time_ms"), 0.2),
        "gradient_isolation_slow": below(of["gradient_isolation"].get("p95_isolation_time_ms"), 8.0),
        "leyline_targets_missed": all(compliance.values()),
        "kd_memory_exceeded": below(of["knowledge_distillation"].get("mean_memory_gb"), 8.0),
        "stability_test_failed": bool(of["48hour_stability"].get("stability_passed", False)),
    }
    return [name for name, is_sound in sound.items() if not is_sound]


NAMES = ("kernel_loading", "gradient_isolation", "leyline_serialization", "knowledge_distillation", "48hour_stability")
