"""A teacher's forward in each of its modes, beside the bare model and what no forward goes below."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from esper.bench.arm import Ready
from esper.bench.work.teachers.models import mlp, outlined
from esper.kernels.teacher.settings import Mode, TeacherSettings
from esper.kernels.teacher.teacher import CheckpointedTeacher

NUM_ANSWERED = 64  # values of a result that are compared
SMALLEST = 1e-30  # in place of a size of 0, which has no logarithm


def bare(widths: tuple[int, ...], batch: int) -> Ready:
    """The model alone, under no_grad."""
    model, inputs = mlp(widths), batch_of(widths, batch)
    return Ready(lambda: alone(model, inputs), lambda: listed(alone(model, inputs)))


def held(widths: tuple[int, ...], batch: int, mode: Mode = "full", precision: str = "float32") -> Ready:
    """The same weights in a teacher; a precision below float32 is both its weights' and its arithmetic's."""
    low = None if precision == "float32" else getattr(torch, precision)
    teacher = teacher_of(widths, TeacherSettings(mode=mode, dtype=low, amp_dtype=low))
    inputs = batch_of(widths, batch)
    return Ready(lambda: teacher(inputs), lambda: listed(teacher(inputs)))


def products(widths: tuple[int, ...], batch: int) -> Ready:
    """Its matrix products alone, the rate of this machine's arithmetic."""
    weights = weights_of(widths)
    inputs = [torch.randn(batch, weight.shape[1]) for weight in weights]
    return Ready(lambda: [torch.mm(x, w.t()) for x, w in zip(inputs, weights, strict=True)])


def weights_read(widths: tuple[int, ...]) -> Ready:
    """Every weight read once, the rate of this machine's memory."""
    weights = weights_of(widths)
    return Ready(lambda: [weight.sum() for weight in weights])


def teacher_of(widths: tuple[int, ...], settings: TeacherSettings) -> CheckpointedTeacher:
    """From a file, which the teacher keeps a copy of."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        return CheckpointedTeacher(outlined(widths), written(mlp(widths), Path(name)), settings=settings)


def batch_of(widths: tuple[int, ...], batch: int) -> Tensor:
    return torch.randn(batch, widths[0], generator=torch.Generator().manual_seed(1))


def weights_of(widths: tuple[int, ...]) -> list[Tensor]:
    return [module.weight.detach() for module in mlp(widths).modules() if isinstance(module, nn.Linear)]


@torch.no_grad()
def alone(model: nn.Module, inputs: Tensor) -> Tensor:
    logits: Tensor = model(inputs)
    return logits


def written(model: nn.Module, directory: Path) -> Path:
    path = directory / "teacher.safetensors"
    save_file(model.state_dict(), path)
    return path


def listed(values: Tensor) -> list[float]:
    """Their root mean square as its logarithm, and as many of them as tell, evenly spread, in units of it: an absolute
    tolerance is then a share of the whole, and no gradient is so small that 0 would pass for it."""
    flat = values.detach().double().flatten()
    size = max(float(flat.square().mean().sqrt()), SMALLEST)
    spread: list[float] = (flat[:: max(1, len(flat) // NUM_ANSWERED)] / size).tolist()
    return [math.log(size), *spread]
