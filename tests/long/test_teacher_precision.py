"""A teacher computes in a precision of its own, and says how far that is from float32."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from esper.kernels.teacher.divergence import divergence, relative_error
from esper.kernels.teacher.settings import TeacherSettings
from esper.tolaria.teachers.teachers import Teachers, TeacherSource
from tests.teacher_kit import Professor, Told, answers, professor, questions, saved, teacher_of


def test_it_computes_in_its_own_precision_whatever_the_students_is(tmp_path: Path) -> None:
    inputs, model = questions(), professor()
    plain, low = (teacher_of(model, tmp_path, amp_dtype=dtype) for dtype in (None, torch.bfloat16))

    with torch.autocast("cpu", dtype=torch.bfloat16):
        from_plain = plain(inputs)

    assert torch.equal(from_plain, answers(model, inputs))
    assert low(inputs).dtype == torch.bfloat16


def test_lower_precision_is_compared_with_float32_and_told_of_past_its_bound(tmp_path: Path) -> None:
    model, inputs, told = professor(), questions(), Told()
    exact = teacher_of(model, tmp_path, told)
    fine, coarse = (
        teacher_of(model, tmp_path, told, amp_dtype=torch.bfloat16, max_relative_error=bound) for bound in (0.05, 1e-6)
    )

    errors = [divergence(teacher, told, inputs) for teacher in (exact, fine, coarse)]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = answers(model, inputs)
    expected = relative_error(low, answers(model, inputs))
    assert errors == [0.0, expected, expected] and 0 < expected < 0.05
    assert [(name, facts["bound"]) for _, name, facts in told.events] == [("teacher.diverged", "1e-06")]


def test_a_teacher_that_is_in_half_precision_itself_is_compared_on_such_inputs(tmp_path: Path) -> None:
    inputs = questions().bfloat16()
    teacher = teacher_of(professor(), tmp_path, dtype=torch.bfloat16)

    error = divergence(teacher, Told(), inputs)

    low = answers(professor().bfloat16(), inputs)
    assert error == relative_error(low, answers(professor(), inputs.float())) > 0


def test_weights_may_be_held_in_half_the_bytes(tmp_path: Path) -> None:
    model = professor()
    teacher = teacher_of(model, tmp_path, dtype=torch.bfloat16)

    logits = teacher(questions().bfloat16())

    assert logits.dtype == torch.bfloat16
    assert teacher.resident_bytes() == sum(p.nbytes for p in model.parameters()) // 2 + 4
    assert torch.equal(teacher.reference(questions()).isfinite(), torch.ones(12, 3, dtype=torch.bool))
    assert teacher(questions().bfloat16()).equal(logits)


class Halved(Professor):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.bfloat16())


def test_a_teacher_that_computes_in_one_precision_alone_is_taken_and_told_of(tmp_path: Path) -> None:
    (_, digest), told = saved(professor(), tmp_path), Told()
    settings = TeacherSettings(dtype=torch.bfloat16)
    teachers = Teachers(TeacherSource(tmp_path, Halved, settings, sample=questions(4)), tell=told)

    teachers.register(digest, 1)

    answer = teachers.predict(questions())
    assert answer is not None and torch.equal(answer, answers(professor().bfloat16(), questions().bfloat16()))
    assert told.names == ["teacher.precision_unmeasured", "teacher.registered"]
    assert "dtype" in told.events[0][2]["reason"] and "teacher_relative_error" not in teachers.take_measured()
