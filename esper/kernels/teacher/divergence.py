"""How far a teacher in lower precision is from itself in float32, on a sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from esper.kernels.teacher.teacher import WARNING, CheckpointedTeacher, Tell, silent


class DivergenceMonitor:
    """Compares logits with those of the same weights in float32, and tells of an error above the teacher's bound.

    Waits for the device and moves the teacher's weights about: for load time and now and then, not for each step.
    """

    def __init__(self, teacher: CheckpointedTeacher, tell: Tell = silent) -> None:
        self.teacher, self._tell = teacher, tell
        self.num_diverged = 0

    def measure(self, *args: Any, **kwargs: Any) -> float:
        """The relative error, norm(low - reference) / norm(reference); tells of one above the bound, or not finite."""
        error = relative_error(self.teacher(*args, **kwargs), self.teacher.reference(*args, **kwargs))
        bound = self.teacher.settings.max_relative_error
        if not error <= bound:  # NaN is a divergence
            self.num_diverged += 1
            found = {"relative_error": f"{error:.4g}", "bound": f"{bound:g}", "mode": self.teacher.mode}
            self._tell(WARNING, "teacher.diverged", digest=self.teacher.digest, **found)
        return error


def relative_error(low: Tensor, reference: Tensor) -> float:
    """Over all elements, in float64; 0 where both are 0."""
    difference = torch.linalg.vector_norm(low.double() - reference.double())
    norm = torch.linalg.vector_norm(reference.double())
    return 0.0 if not bool(difference) else float(difference / norm)
