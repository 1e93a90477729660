"""The KD loss with its backward, beside the documents' own line and what reading its logits takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from esper.bench.arm import Ready
from esper.bench.effort import TOO_LONG, Effort
from esper.bench.figures import Figure, not_measured
from esper.bench.rows.distillation import LOGITS
from esper.bench.work.allocated import peak_bytes
from esper.bench.work.teachers.modes import listed
from esper.kernels.distillation import StaticKDLoss
from esper.kernels.softened import Soft, composed

TEMPERATURE = 3.0  # the documents' in their validation and benchmark, where their design says 4
ROW, MOST_MB = "kd-memory", 100.0  # unified design, 5.9: overhead of computing the loss
HEAVY = 1 << 22  # logits


def documents(student: Tensor, teacher: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """kasmina-performance-validation.md, 2.1."""
    soft = functional.softmax(teacher / temperature, dim=-1)
    divergence = functional.kl_div(functional.log_softmax(student / temperature, dim=-1), soft, reduction="batchmean")
    return divergence * temperature**2


def theirs(batch: int, classes: int) -> Ready:
    return _ready(documents, batch, classes)


def ours(batch: int, classes: int) -> Ready:
    return _ready(StaticKDLoss(temperature=TEMPERATURE, kd_weight=1.0), batch, classes)


def in_operations(batch: int, classes: int) -> Ready:
    """Ours composed of torch's operations, in place of one pass over the logits."""
    return _ready(lambda one, other: composed(Soft(one, other, None, TEMPERATURE, 1.0)), batch, classes)


def memory(effort: Effort) -> Iterator[Figure]:
    """Most that value and gradient allocate, counted; the largest shape is left out of a quick run."""
    for batch, classes in LOGITS.values():
        shape = f"{batch} x {classes}"
        for arm, made in {"the documents' line": theirs, "StaticKDLoss": ours}.items():
            if effort.is_quick and batch * classes > HEAVY:
                yield Figure(ROW, arm, "new", None, "MB", label=not_measured(TOO_LONG), shape=shape)
            else:
                new = peak_bytes(made(batch, classes).call) / 1e6
                yield Figure(
                    ROW, arm, "new", new, "MB", 1, shape=shape, target=MOST_MB if arm == "StaticKDLoss" else None
                )


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
