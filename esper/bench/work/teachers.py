"""A teacher's forward in each of its modes, beside the bare model and what no forward goes below."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from esper.bench.arm import Ready
from esper.bench.work.models import mlp, outlined
from esper.kernels.teacher.settings import Mode, TeacherSettings
from esper.kernels.teacher.teacher import CheckpointedTeacher

NUM_ANSWERED = 64  # values of a result that are compared


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
    call = limits(mlp(widths), batch)["its products alone"]
    return Ready(call)


def weights_read(widths: tuple[int, ...]) -> Ready:
    """Every weight read once, the rate of this machine's memory."""
    return Ready(limits(mlp(widths), 1)["its weights read once"])


def teacher_of(widths: tuple[int, ...], settings: TeacherSettings) -> CheckpointedTeacher:
    """From a file, which the teacher keeps a copy of."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        return CheckpointedTeacher(outlined(widths), written(mlp(widths), Path(name)), settings=settings)


def batch_of(widths: tuple[int, ...], batch: int) -> Tensor:
    return torch.randn(batch, widths[0], generator=torch.Generator().manual_seed(1))


def limits(model: nn.Module, batch: int) -> dict[str, Callable[[], object]]:
    """The same products alone, in both precisions, and every weight read once: what no forward goes below."""
    weights = [module.weight.detach() for module in model.modules() if isinstance(module, nn.Linear)]
    inputs = [torch.randn(batch, weight.shape[1]) for weight in weights]
    low = [(x.bfloat16(), weight.bfloat16()) for x, weight in zip(inputs, weights, strict=True)]
    return {
        "its products alone": lambda: [torch.mm(x, w.t()) for x, w in zip(inputs, weights, strict=True)],
        "its products, bfloat16": lambda: [torch.mm(x, w.t()) for x, w in low],
        "its weights read once": lambda: [weight.sum() for weight in weights],
    }


@torch.no_grad()
def alone(model: nn.Module, inputs: Tensor) -> Tensor:
    logits: Tensor = model(inputs)
    return logits


def written(model: nn.Module, directory: Path) -> Path:
    path = directory / "teacher.safetensors"
    save_file(model.state_dict(), path)
    return path


def listed(values: Tensor) -> list[float]:
    """As many of them as tell, evenly spread, and their sum."""
    flat = values.detach().float().flatten()
    spread: list[float] = flat[:: max(1, len(flat) // NUM_ANSWERED)].tolist()
    return [*spread, float(flat.sum())]
