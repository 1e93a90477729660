"""Knowledge distillation under the import path that a seed's code uses."""

from __future__ import annotations

from esper.kasmina.seeds.seed_kd import SeedDistillation as SeedDistillation
from esper.kernels.distillation import StaticKDLoss as StaticKDLoss
from esper.kernels.teacher.teacher import CheckpointedTeacher as CheckpointedTeacher
from esper.kernels.teacher.telemetry import CheckpointTelemetry as CheckpointTelemetry
