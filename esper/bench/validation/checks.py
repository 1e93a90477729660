"""The documents' validations as functions of what was measured, with their keys and their bounds.

Section 2.1 of the performance-validation seed. What is unmeasured is None, and fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from esper.bench.validation.readings import Readings, Spread, below

Metrics: TypeAlias = dict[str, Any]
Check: TypeAlias = Callable[[Readings], Metrics]

GIGA = 1e3  # megabytes
TEACHER_GB, TEACHER_TARGET_GB = 8.0, 7.0
SIZES_OF = "system state"


def kernel_loading(read: Readings) -> Metrics:
    """From the pool into a slot, milliseconds."""
    spread = Spread(read.samples("kernel-load", "pool to slot"))
    passed = below(spread.mean, 0.1) and below(spread.most, 0.5) and below(spread.p95, 0.2)
    return {
        "avg_load_time_ms": spread.mean,
        "max_load_time_ms": spread.most,
        "p95_load_time_ms": spread.p95,
        "validation_passed": passed,
    }


def isolation_ms(read: Readings) -> list[float]:
    """What isolation adds to a pass with two seeds, round by round; below 0 where noise was larger."""
    isolated = read.samples("gradient-isolation", "two seeds training")
    bare = read.samples("gradient-isolation", "seeds, nothing between")
    return [one - other for one, other in zip(isolated, bare, strict=True)]


def gradient_isolation(read: Readings) -> Metrics:
    """The difference of interleaved arms, where the documents add up profiler events whose names match."""
    spread = Spread(isolation_ms(read))
    return {
        "avg_isolation_time_ms": spread.mean,
        "max_isolation_time_ms": spread.most,
        "validation_passed": below(spread.mean, 8.0) and below(spread.most, 12.0),
    }


def leyline_messages(read: Readings) -> Metrics:
    """Serialising a SystemStatePacket, microseconds (means of a thousand calls), and its size under its seal."""
    spread = Spread(read.samples("message-state", "serialise"))
    size = read.value("message-kinds", f"{SIZES_OF}, sealed", "count")
    passed = below(spread.mean, 80) and below(spread.p95, 120) and below(size, 280)
    return {
        "avg_serialization_time_us": spread.mean,
        "p95_serialization_time_us": spread.p95,
        "avg_message_size_bytes": size,
        "max_message_size_bytes": size,
        "validation_passed": passed,
    }


def teacher_gb(read: Readings, mode: str = "full") -> float | None:
    """Weights, and what a forward allocates besides."""
    parts = [read.value("teacher-memory", mode, stat) for stat in ("held", "new in a forward")]
    known = [part for part in parts if part is not None]
    return sum(known) / GIGA if len(known) == len(parts) else None


def knowledge_distillation(read: Readings) -> Metrics:
    """The documents' test teacher in time, and in memory the largest that this effort measures."""
    memory = teacher_gb(read)
    forward = Spread(read.samples("teacher-forward", "teacher")).mean
    loss = Spread(read.samples("kd-loss", "StaticKDLoss")).mean
    held = read.value("teacher-memory", "int8", "held, of float16")
    return {
        "teacher_memory_gb": memory,
        "avg_teacher_forward_ms": forward,
        "avg_kd_loss_computation_ms": loss,
        "memory_reduction_achieved": None if held is None else f"{(1 - held) * 100:.1f}%",
        "validation_passed": memory is not None and memory <= TEACHER_GB and below(forward, 12.0) and below(loss, 2.0),
    }


def checkpoint_overhead(read: Readings) -> Metrics:
    """Medians of a pass in which weights learn: a mean is what else the machine did. Less than 15 % is no failure."""
    plain = Spread(read.samples("checkpoint-overhead", "plain")).median
    checkpointed = Spread(read.samples("checkpoint-overhead", "checkpointed")).median
    percent = None if plain is None or checkpointed is None else (checkpointed / plain - 1) * 100
    return {
        "baseline_time_ms": plain,
        "checkpoint_time_ms": checkpointed,
        "overhead_percent": percent,
        "within_acceptable_range": percent is not None and percent <= 25.0,
        "target_range": "15-20%",
    }


def memory_reduction(read: Readings) -> Metrics:
    """Of the large teacher with gradients on both sides, where the documents compare training with inference; and of
    transformer blocks, which keep more activations than weights."""
    plain, checkpointed, percent = checkpoint_mb(read, "large")
    return {
        "without_checkpoint_gb": None if plain is None else plain / GIGA,
        "with_checkpoint_gb": None if checkpointed is None else checkpointed / GIGA,
        "reduction_percent": percent,
        "reduction_percent_of_blocks": checkpoint_mb(read, "blocks")[2],
        "target_achieved": percent is not None and percent >= 45.0 and below(checkpointed, TEACHER_GB * GIGA),
        "target_memory_gb": TEACHER_TARGET_GB,
    }


def checkpoint_mb(read: Readings, model: str) -> tuple[float | None, float | None, float | None]:
    """Most that a pass allocates, plain and checkpointed, and how many percent less the second is."""
    row, stat = "checkpoint-memory", "new, gradients flow"
    plain, checkpointed = (read.value(row, way, stat, model) for way in ("plain", "checkpointed"))
    if plain is None or checkpointed is None:
        return plain, checkpointed, None
    return plain, checkpointed, (1 - checkpointed / plain) * 100


def torch_compile_stability(read: Readings) -> Metrics:
    """Of a host in which seeds come and go, by the compiler's own counters: the documents' callback does not exist."""
    count = read.value("compile-stability", "all", "recompiles")
    spread = Spread(read.samples("compile-stability", "all", "spread of a step"))
    expected = 3
    steady = spread.mean is not None and below(spread.deviation, 0.2 * spread.mean)
    return {
        "recompilation_count": count,
        "expected_recompilations": expected,
        "avg_time_after_warmup_ms": spread.mean,
        "time_variance_ms": spread.deviation,
        "stability_achieved": count is not None and count <= 2 * expected and steady,
    }
