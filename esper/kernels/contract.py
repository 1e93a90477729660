"""What an executor of kernels offers, by the names of the kasmina seeds (02.1, section 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from esper.kernels.kernel import Kernel, KernelId
from esper.leyline import contracts as pb


@runtime_checkable
class KernelLoading(Protocol):
    """Kernels by id. Nothing here is awaited: a training process runs no event loop, and blueprints are at hand."""

    def load_kernel(self, kernel_artifact_id: KernelId) -> Kernel: ...
    def execute_kernel(self, kernel: Kernel, input_tensor: Tensor, output: Tensor) -> Tensor: ...
    def cache_kernel(self, kernel_artifact_id: KernelId, kernel: Kernel) -> None: ...
    def evict_kernel(self, kernel_artifact_id: KernelId) -> bool: ...


@runtime_checkable
class TeacherKernels(Protocol):
    """Kernels beside a teacher whose outputs a seed may learn from (C-024)."""

    def load_kernel_with_teacher(self, kernel_artifact_id: KernelId) -> tuple[Kernel, Tensor | None]: ...
    def get_teacher_predictions(self, input_batch: Tensor) -> Tensor | None: ...
    def get_checkpoint_effectiveness(self) -> Mapping[str, float]: ...


@runtime_checkable
class LeylineHandling(Protocol):
    """Messages in and out."""

    def handle_leyline_command(self, command: pb.AdaptationCommand) -> bool: ...
    def handle_optimizer_command(self, command: pb.OptimizerCommand) -> bool: ...
    def export_leyline_telemetry(self) -> pb.TelemetryPacket: ...
    def verify_message_auth(self, message: Any) -> bool: ...


@runtime_checkable
class GradientWatch(Protocol):
    """That a seed's gradients stay in the seed (C-022)."""

    def register_gradient_monitors(self, host_model: nn.Module, seed_model: nn.Module) -> None: ...
    def check_gradient_isolation(self) -> bool: ...


@runtime_checkable
class PerformanceFigures(Protocol):
    """What it costs."""

    def validate_performance_targets(self) -> Mapping[str, bool]: ...
    def get_performance_metrics(self) -> Mapping[str, float]: ...


@runtime_checkable
class KernelExecutionContract(
    KernelLoading, TeacherKernels, LeylineHandling, GradientWatch, PerformanceFigures, Protocol
):
    """All of it. Its parts are kept by different objects, each of which answers for its own Protocol."""
