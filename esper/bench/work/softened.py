"""The KD loss with its backward, beside the documents' own line and what reading its logits takes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from esper.bench.arm import Ready
from esper.bench.work.teachers import listed
from esper.kernels.distillation import StaticKDLoss

TEMPERATURE = 3.0  # the documents' in their validation and benchmark, where their design says 4


def documents(student: Tensor, teacher: Tensor) -> Tensor:
    """kasmina-performance-validation.md, 2.1."""
    soft = functional.softmax(teacher / TEMPERATURE, dim=-1)
    divergence = functional.kl_div(functional.log_softmax(student / TEMPERATURE, dim=-1), soft, reduction="batchmean")
    return divergence * TEMPERATURE**2


def theirs(batch: int, classes: int) -> Ready:
    return _ready(documents, batch, classes)


def ours(batch: int, classes: int) -> Ready:
    return _ready(StaticKDLoss(temperature=TEMPERATURE, kd_weight=1.0), batch, classes)


def read_once(batch: int, classes: int) -> Ready:
    """Both logits read, one tensor of their size written: the rate of this machine's memory."""
    student, teacher = _logits(batch, classes)
    plain = student.detach()
    return Ready(lambda: plain - teacher)


def _ready(loss: Callable[[Tensor, Tensor], Tensor], batch: int, classes: int) -> Ready:
    """Value and gradient to the student's logits."""
    student, teacher = _logits(batch, classes)

    def call() -> tuple[Tensor, Tensor]:
        value = loss(student, teacher)
        return value, torch.autograd.grad(value, student)[0]

    def answer() -> list[list[float]]:
        return [listed(each) for each in call()]

    return Ready(call, answer)


def _logits(batch: int, classes: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    student = torch.randn(batch, classes, generator=draw)
    return student.requires_grad_(), torch.randn(batch, classes, generator=draw)
