"""The import path at which the kernel documents look for a teacher's model: made by the factory that you give."""

from __future__ import annotations

from esper.kernels.teacher.building import create_teacher_model as create_teacher_model
