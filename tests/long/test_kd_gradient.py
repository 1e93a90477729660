"""The loss of distillation in one pass: its value and gradients are those of its definition, whatever the size."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from esper.kasmina.kd import StaticKDLoss

torch.set_num_threads(1)
LARGE = (70, 1500)  # more elements than are worked on at once


def logits(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3).to(dtype)


def defined(student: Tensor, teacher: Tensor) -> Tensor:
    """By torch's own kl_div in float64, at T = 4 and weight 0.3."""
    log_student, log_teacher = ((each.double() / 4).log_softmax(-1) for each in (student, teacher))
    divergence: Tensor = functional.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True)
    return divergence * 0.3 * 16


@pytest.mark.parametrize("shape", [(1, 2), (32, 10), LARGE])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_value_and_gradient_are_those_of_torchs_divergence_in_float64(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    student, teacher = logits(*shape, dtype=dtype).requires_grad_(), logits(*shape, seed=1, dtype=dtype)

    loss = StaticKDLoss()(student, teacher)
    (gradient,) = torch.autograd.grad(loss, student)
    expected = defined(student, teacher)
    (wanted,) = torch.autograd.grad(expected, student)

    close = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    assert math.isclose(loss.item(), expected.item(), rel_tol=min(close, 1e-5))
    assert gradient.dtype == dtype and (gradient - wanted).norm() <= close * wanted.norm()


def test_without_a_gradient_it_has_the_same_bits() -> None:
    student, teacher = logits(*LARGE), logits(*LARGE, seed=1)

    assert torch.equal(StaticKDLoss()(student, teacher), StaticKDLoss()(student.clone().requires_grad_(), teacher))


def test_its_gradient_is_scaled_by_what_comes_from_above_and_can_be_asked_for_twice() -> None:
    student, teacher = logits(4, 6).requires_grad_(), logits(4, 6, seed=1)
    loss = StaticKDLoss()(student, teacher)

    (once,) = torch.autograd.grad(loss, student, retain_graph=True)
    (again,) = torch.autograd.grad(loss * 65536.0, student)

    assert torch.equal(again, once * 65536.0)


def test_rows_left_out_of_a_large_batch_count_nothing() -> None:
    student, teacher = logits(*LARGE), logits(*LARGE, seed=1)
    kept = torch.arange(LARGE[0]) % 3 > 0
    alone = defined(student[kept], teacher[kept])
    student[~kept] = math.nan
    student.requires_grad_()

    loss = StaticKDLoss()(student, teacher, mask=kept)
    narrow = StaticKDLoss()(student.detach().float(), teacher.float(), mask=kept)
    (gradient,) = torch.autograd.grad(loss, student)

    assert math.isclose(loss.item(), alone.item(), rel_tol=1e-12)
    assert not gradient[~kept].any() and gradient[kept].any(-1).all()
    assert narrow.dtype == torch.float32


def test_a_class_that_the_teacher_rules_out_counts_nothing_and_still_has_its_gradient() -> None:
    student, teacher = logits(*LARGE).requires_grad_(), logits(*LARGE, seed=1)
    teacher[:, 7] = -math.inf

    loss = StaticKDLoss()(student, teacher)
    (gradient,) = torch.autograd.grad(loss, student)

    theirs = (teacher / 4).softmax(-1)
    wanted = theirs * ((theirs + 1e-300).log() - (student.detach() / 4).log_softmax(-1))
    assert math.isclose(loss.item(), wanted.sum().item() / LARGE[0] * 0.3 * 16, rel_tol=1e-12)
    assert torch.allclose(gradient[:, 7], 0.3 * 4 * (student.detach() / 4).softmax(-1)[:, 7] / LARGE[0], rtol=1e-12)


def test_a_student_that_is_not_finite_shows_in_the_loss() -> None:
    student = logits(3, 5).requires_grad_()
    with torch.no_grad():
        student[1, 2] = math.nan

    assert StaticKDLoss()(student, logits(3, 5, seed=1)).isnan()


def test_under_autocast_it_has_the_same_bits() -> None:
    student, teacher = (logits(8, 16, seed=seed, dtype=torch.float32) for seed in (0, 1))
    student.requires_grad_()
    plain = StaticKDLoss()(student, teacher)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = StaticKDLoss()(student, teacher)

    assert torch.equal(loss, plain)


def test_a_tracing_compiler_sees_the_composition() -> None:
    student, teacher = logits(4, 6).requires_grad_(), logits(4, 6, seed=1)
    compiled = torch.compile(StaticKDLoss(), backend="aot_eager", fullgraph=True)

    loss = compiled(student, teacher)
    (gradient,) = torch.autograd.grad(loss, student)

    (wanted,) = torch.autograd.grad(defined(student, teacher), student)
    assert torch.allclose(gradient, wanted, rtol=1e-12)
