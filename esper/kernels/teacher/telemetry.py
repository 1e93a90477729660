"""What gradient checkpointing of a teacher saves and costs, measured on a sample."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from esper.kernels.teacher.teacher import CheckpointedTeacher

GIGA = 1e9
REPEATS = 3


class CheckpointTelemetry:
    """`metrics`: memory in GB (1e9 bytes), overhead in ms of one forward and backward, segments computed again so far.

    Memory is what autograd keeps from forward to backward, the teacher's resident weights aside. Under no_grad nothing
    is kept, so that there it is 0 with and without checkpointing.
    """

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {
            "memory_before_checkpoint": 0.0,
            "memory_after_checkpoint": 0.0,
            "checkpoint_overhead_ms": 0.0,
            "recomputation_count": 0.0,
            "memory_saved_gb": 0.0,
        }

    @torch.enable_grad()
    def record_checkpoint_stats(self, teacher: CheckpointedTeacher, inputs: Tensor) -> dict[str, float]:
        """Measure on `inputs`, floating, of any batch size: once for bytes, then three times each way for time."""
        probe = inputs.detach().clone().requires_grad_()
        before = kept_bytes(teacher, lambda: teacher.unchecked(probe))
        after = kept_bytes(teacher, lambda: teacher.through(probe))
        plain, checked = (_time_ms(teacher, run, probe) for run in (teacher.unchecked, teacher.through))
        self.metrics = {
            "memory_before_checkpoint": before / GIGA,
            "memory_after_checkpoint": after / GIGA,
            "checkpoint_overhead_ms": checked - plain,
            "recomputation_count": float(teacher.segments.recomputation_count),
            "memory_saved_gb": (before - after) / GIGA,
        }
        return self.metrics


def kept_bytes(teacher: nn.Module, forward: Callable[[], Tensor]) -> int:
    """Distinct storages that autograd saves in one forward, apart from weights that are held anyway."""
    resident = {_storage(parameter) for parameter in teacher.parameters() if not parameter.is_meta}
    kept: dict[int, int] = {}
    alive: list[Tensor] = []  # else one address could be counted for two tensors

    def pack(tensor: Tensor) -> Tensor:
        if (address := _storage(tensor)) not in resident:
            kept[address] = tensor.untyped_storage().nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(kept.values())


def _storage(tensor: Tensor) -> int:
    # A quantised weight is a subclass without a storage of its own.
    return id(tensor) if hasattr(tensor, "__tensor_flatten__") else tensor.untyped_storage().data_ptr()


def _time_ms(teacher: CheckpointedTeacher, run: Callable[..., Any], probe: Tensor) -> float:
    times = []
    for _ in range(REPEATS):
        _wait(teacher.device)
        started = time.perf_counter()
        torch.autograd.grad(run(probe).sum(), probe)
        _wait(teacher.device)
        times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
