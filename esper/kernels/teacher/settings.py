"""How a teacher is held and run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from esper.errors import SettingError

Mode = Literal["full", "int8", "offload"]
MODES: tuple[Mode, ...] = get_args(Mode)  # each needs less memory than the one before it


@dataclass(frozen=True, slots=True)
class TeacherSettings:
    """The first two say where and how the weights lie, the rest how it computes and when it complains."""

    mode: Mode = "full"
    device: str = ""  # empty: where the factory's model lies
    dtype: torch.dtype | None = None  # of the weights; None: those of the factory's model
    amp_dtype: torch.dtype | None = None  # autocast of its forward, whatever the student's is; None: without
    checkpoint_segments: int = 4  # of `through`, where gradients flow
    budget_bytes: int = 0  # a mode that needs more is passed over; 0: only the allocator's own word counts
    max_relative_error: float = 0.05  # of logits in lower precision, against float32

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise SettingError("teacher mode", self.mode, f"one of {', '.join(MODES)}")
        if self.checkpoint_segments < 1:
            raise SettingError("checkpoint_segments", self.checkpoint_segments, "at least 1")
        if self.budget_bytes < 0:
            raise SettingError("budget_bytes", self.budget_bytes, "at least 0; 0 is no limit")
        if not (math.isfinite(self.max_relative_error) and self.max_relative_error > 0):
            raise SettingError("max_relative_error", self.max_relative_error, "a finite number above 0")
