"""Gradient checkpointing of a teacher: the same gradients, and less kept where gradients flow."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from esper.kernels.teacher.settings import Mode, TeacherSettings
from esper.kernels.teacher.teacher import CheckpointedTeacher
from esper.kernels.teacher.telemetry import CheckpointTelemetry, kept_bytes
from tests.teacher_kit import AVAILABLE, professor, questions, teacher_of


@pytest.mark.parametrize("mode", AVAILABLE)
def test_a_gradient_through_it_is_the_same_with_and_without_checkpointing(mode: Mode, tmp_path: Path) -> None:
    teacher = teacher_of(professor(), tmp_path, mode=mode)
    inputs = questions().requires_grad_()

    (plain,) = torch.autograd.grad(teacher.unchecked(inputs).square().sum(), inputs)
    (checked,) = torch.autograd.grad(teacher.through(inputs).square().sum(), inputs)

    assert torch.equal(plain, checked) and plain.any()
    assert teacher.segments.recomputation_count == 6
    assert all(parameter.grad is None for parameter in teacher.parameters())


@pytest.mark.parametrize(("segments", "runs"), [(1, 1), (2, 2), (4, 4), (99, 7)])
def test_a_sequential_trunk_is_cut_into_as_many_segments_as_asked_for(segments: int, runs: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(8, 8), nn.Tanh())], nn.Linear(8, 3))
    inputs = questions().requires_grad_()
    (expected,) = torch.autograd.grad(model(inputs).sum(), inputs)
    teacher = CheckpointedTeacher(model, settings=TeacherSettings(checkpoint_segments=segments))

    (found,) = torch.autograd.grad(teacher.through(inputs).sum(), inputs)

    assert torch.equal(found, expected)
    assert teacher.segments.recomputation_count == runs


def test_checkpointing_saves_where_gradients_flow_and_nothing_under_no_grad(tmp_path: Path) -> None:
    teacher, telemetry = teacher_of(professor(), tmp_path), CheckpointTelemetry()

    metrics = telemetry.record_checkpoint_stats(teacher, questions(64))
    with torch.no_grad():
        plain = kept_bytes(teacher, lambda: teacher.unchecked(questions(64)))
        checked = kept_bytes(teacher, lambda: teacher.through(questions(64)))

    inputs_of_blocks = 6 * 64 * 16 * 4
    assert inputs_of_blocks / 1e9 <= metrics["memory_after_checkpoint"] < 0.3 * metrics["memory_before_checkpoint"]
    saved_gb = metrics["memory_before_checkpoint"] - metrics["memory_after_checkpoint"]
    assert metrics["memory_saved_gb"] == pytest.approx(saved_gb)
    assert metrics["recomputation_count"] == 18 and (plain, checked) == (0, 0)
