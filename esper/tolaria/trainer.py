"""The import path at which the performance documents look for a teacher; it lives in esper.kernels.teacher."""

from __future__ import annotations

from esper.kernels.teacher.teacher import CheckpointedTeacher as CheckpointedTeacher
