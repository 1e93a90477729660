"""How far a teacher in lower precision is from itself in float32, on a sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from esper.kernels.teacher.teacher import WARNING, CheckpointedTeacher, Tell


def divergence(teacher: CheckpointedTeacher, tell: Tell, *args: Any) -> float:
    """The relative error of its logits, norm(low - reference) / norm(reference).

    Tells of one above the teacher's bound, or not finite. Waits for the device and moves the teacher's weights about:
    for load time and now and then, not for each step.
    """
    error, bound = relative_error(teacher(*args), teacher.reference(*args)), teacher.settings.max_relative_error
    if not error <= bound:  # NaN is a divergence
        found = {"relative_error": f"{error:.4g}", "bound": f"{bound:g}", "mode": teacher.mode}
        tell(WARNING, "teacher.diverged", digest=teacher.digest, **found)
    return error


def relative_error(low: Tensor, reference: Tensor) -> float:
    """Over all elements, in float64; 0 where both are 0."""
    difference = torch.linalg.vector_norm(low.double() - reference.double())
    norm = torch.linalg.vector_norm(reference.double())
    return 0.0 if not bool(difference) else float(difference / norm)
