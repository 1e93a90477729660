"""Knowledge distillation: a student's logits drawn to those of a frozen teacher."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from esper.errors import SettingError
from esper.kernels.softened import Soft, SoftenedKL, composed, fused

TEMPERATURE = 4.0
KD_WEIGHT = 0.3
IGNORE_INDEX = -100  # as in torch.nn.functional.cross_entropy


class StaticKDLoss(nn.Module):
    """kd_weight * T^2 * mean over positions of KL(softmax(teacher / T) || softmax(student / T)).

    Hinton et al. 2015 (arXiv 1503.02531), section 2: gradients of the soft targets scale as 1/T^2, hence the factor
    T^2, which keeps them comparable with the hard loss at every T. Add it to that loss: it reaches the student
    undetached, and nothing of it reaches the teacher. Holds no parameters and no buffers.
    """

    def __init__(self, temperature: float = TEMPERATURE, kd_weight: float = KD_WEIGHT, dim: int = -1) -> None:
        """`dim` is that of the classes. Raises SettingError for a temperature <= 0 or a weight < 0."""
        super().__init__()
        if not (math.isfinite(temperature) and temperature > 0):
            raise SettingError("temperature", temperature, "a finite number above 0")
        if not (math.isfinite(kd_weight) and kd_weight >= 0):
            raise SettingError("kd_weight", kd_weight, "a finite number of at least 0")
        self.temperature, self.kd_weight, self.dim = float(temperature), float(kd_weight), dim

    def forward(
        self,
        student_logits: Tensor,
        teacher_logits: Tensor,
        targets: Tensor | None = None,
        *,
        ignore_index: int = IGNORE_INDEX,
        mask: Tensor | None = None,
    ) -> Tensor:
        """A 0-dim tensor, in float32 or better. Logits: one shape, [..., classes] by default.

        Positions whose `targets` are `ignore_index`, or whose `mask` is False, count nothing; both have the shape of
        the logits without the classes. Where none is left the loss is 0. A class of logit -inf at the teacher counts
        nothing. Twice differentiable, in reverse mode. Raises SettingError for shapes that don't fit.
        """
        dim = self._class_dim(student_logits, teacher_logits)
        student, teacher = (_classes_last(each, dim) for each in (student_logits, teacher_logits.detach()))
        counted = _counted(student.shape[:-1], targets, ignore_index, mask)
        return _loss(Soft(student, teacher, counted, self.temperature, self.kd_weight))

    def extra_repr(self) -> str:
        return f"temperature={self.temperature:g}, kd_weight={self.kd_weight:g}, dim={self.dim}"

    def _class_dim(self, student: Tensor, teacher: Tensor) -> int:
        if teacher.shape != student.shape:
            raise SettingError(
                "shape of teacher_logits", tuple(teacher.shape), f"the student's, {tuple(student.shape)}"
            )
        if not -student.ndim <= self.dim < student.ndim or student.numel() == 0:
            raise SettingError("shape of student_logits", tuple(student.shape), f"classes in dimension {self.dim}")
        return self.dim % student.ndim


def _classes_last(logits: Tensor, dim: int) -> Tensor:
    return logits if dim == logits.ndim - 1 else logits.movedim(dim, -1)


def _loss(soft: Soft) -> Tensor:
    if torch.compiler.is_compiling():  # a compiler fuses the composition, with its backward
        return composed(soft)
    size = soft.student.shape[-1]
    flat = soft._replace(student=soft.student.reshape(-1, size), teacher=soft.teacher.reshape(-1, size))
    if soft.counted is not None:
        flat = flat._replace(counted=soft.counted.reshape(-1))
    if not (torch.is_grad_enabled() and soft.student.requires_grad):
        return fused(flat, learns=False)[0]
    value: Tensor = SoftenedKL.apply(*flat)  # type: ignore[no-untyped-call]
    return value


def _counted(shape: torch.Size, targets: Tensor | None, ignore_index: int, mask: Tensor | None) -> Tensor | None:
    for name, given in (("targets", targets), ("mask", mask)):
        if given is not None and given.shape != shape:
            raise SettingError(f"shape of {name}", tuple(given.shape), f"{tuple(shape)}, one entry a position")
    if targets is None:
        return None if mask is None else mask.bool()
    kept = targets != ignore_index
    return kept if mask is None else kept & mask.bool()
