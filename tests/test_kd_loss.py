"""The loss of knowledge distillation, against its formula in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from esper.errors import SettingError
from esper.kasmina.kd import StaticKDLoss

torch.set_num_threads(1)


def logits(*shape: int, seed: int = 0, scale: float = 3.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale


def expected(student: Tensor, teacher: Tensor, temperature: float, weight: float) -> float:
    """The formula of Hinton et al., one position after another, in numpy's float64."""
    total, rows = 0.0, list(zip(student.flatten(0, -2).numpy(), teacher.flatten(0, -2).numpy(), strict=True))
    for ours, theirs in rows:
        p = np.exp(theirs / temperature) / np.exp(theirs / temperature).sum()
        q = np.exp(ours / temperature) / np.exp(ours / temperature).sum()
        total += float((p * np.log(p / q)).sum())
    return weight * temperature**2 * total / len(rows)


@pytest.mark.parametrize("shape", [(5, 10), (2, 3, 7)])
@pytest.mark.parametrize(("temperature", "weight"), [(4.0, 0.3), (1.0, 1.0), (3.0, 0.5)])
def test_it_is_the_published_formula(shape: tuple[int, ...], temperature: float, weight: float) -> None:
    student, teacher = logits(*shape), logits(*shape, seed=1)

    loss = StaticKDLoss(temperature, weight)(student, teacher)

    assert float(loss) == pytest.approx(expected(student, teacher, temperature, weight), rel=1e-12)


def test_the_defaults_are_temperature_four_and_weight_three_tenths() -> None:
    student, teacher = logits(4, 6), logits(4, 6, seed=1)

    assert float(StaticKDLoss()(student, teacher)) == pytest.approx(expected(student, teacher, 4.0, 0.3), rel=1e-12)


def test_its_gradient_reaches_the_student_and_is_the_derivative() -> None:
    student, teacher = logits(3, 5).requires_grad_(), logits(3, 5, seed=1)

    assert torch.autograd.gradcheck(lambda s: StaticKDLoss()(s, teacher), student)
    assert torch.autograd.gradgradcheck(lambda s: StaticKDLoss()(s, teacher), student)


def test_its_gradient_is_weight_times_t_times_the_difference_of_the_softened_distributions() -> None:
    student, teacher = logits(3, 5).requires_grad_(), logits(3, 5, seed=1)

    (gradient,) = torch.autograd.grad(StaticKDLoss()(student, teacher), student)

    difference = (student.detach() / 4).softmax(-1) - (teacher / 4).softmax(-1)
    assert torch.allclose(gradient, 0.3 * 4.0 * difference / 3, rtol=1e-12, atol=0)


def test_nothing_of_it_reaches_the_teacher() -> None:
    student, teacher = logits(3, 5).requires_grad_(), logits(3, 5, seed=1).requires_grad_()

    StaticKDLoss()(student, teacher).backward()

    assert teacher.grad is None


def test_positions_that_are_ignored_or_masked_count_nothing_whatever_they_hold() -> None:
    student, teacher = logits(2, 3, 7), logits(2, 3, 7, seed=1)
    targets = torch.tensor([[1, -100, 2], [0, 3, -100]])
    mask = torch.tensor([[True, True, True], [False, True, True]])
    kept = (targets != -100) & mask
    alone = StaticKDLoss()(student[kept], teacher[kept])
    student[0, 1] = math.nan
    student.requires_grad_()

    loss = StaticKDLoss()(student, teacher, targets, mask=mask)
    (gradient,) = torch.autograd.grad(loss, student)

    assert float(loss.detach()) == pytest.approx(float(alone), rel=1e-12)
    assert not gradient[1, 0].any() and not gradient[1, 2].any()


def test_where_every_position_is_ignored_the_loss_is_zero_and_so_is_its_gradient() -> None:
    student = logits(2, 5).requires_grad_()

    loss = StaticKDLoss()(student, logits(2, 5, seed=1), torch.tensor([-1, -1]), ignore_index=-1)
    (gradient,) = torch.autograd.grad(loss, student)

    assert not loss.any() and not gradient.any()


def test_a_class_that_both_rule_out_counts_nothing() -> None:
    student, teacher = logits(3, 5), logits(3, 5, seed=1)
    closed = torch.full((3, 1), -math.inf, dtype=torch.float64)
    padded = torch.cat([student, closed], -1).requires_grad_()

    loss = StaticKDLoss()(padded, torch.cat([teacher, closed], -1))
    (gradient,) = torch.autograd.grad(loss, padded)

    assert float(loss.detach()) == pytest.approx(expected(student, teacher, 4.0, 0.3), rel=1e-12)
    assert gradient.isfinite().all()


def test_classes_may_stand_in_another_dimension() -> None:
    student, teacher = logits(2, 4, 3, 3), logits(2, 4, 3, 3, seed=1)

    loss = StaticKDLoss(dim=1)(student, teacher)

    moved = expected(student.movedim(1, -1), teacher.movedim(1, -1), 4.0, 0.3)
    assert float(loss) == pytest.approx(moved, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_logits_of_half_precision_are_compared_in_float32(dtype: torch.dtype) -> None:
    student, teacher = logits(8, 16).to(dtype), logits(8, 16, seed=1).to(dtype)

    loss = StaticKDLoss()(student, teacher)

    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(expected(student.double(), teacher.double(), 4.0, 0.3), rel=1e-5)


def test_equal_logits_lose_nothing_even_where_they_are_huge() -> None:
    same = logits(4, 9, scale=1e6)

    assert float(StaticKDLoss()(same, same + 1e5)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("student", "teacher", "extra", "said"),
    [
        ((2, 5), (2, 6), {}, r"shape of teacher_logits is \(2, 6\); expected the student's, \(2, 5\)"),
        ((2, 5), (5,), {}, r"\(5,\)"),
        ((), (), {}, "classes in dimension -1"),
        ((0, 5), (0, 5), {}, "classes in dimension -1"),
        ((2, 5), (2, 5), {"targets": torch.zeros(5)}, r"shape of targets is \(5,\); expected \(2,\)"),
        ((2, 5), (2, 5), {"mask": torch.ones(2, 5)}, r"shape of mask is \(2, 5\); expected \(2,\)"),
    ],
)
def test_shapes_that_do_not_fit_are_one_clear_error(
    student: tuple[int, ...], teacher: tuple[int, ...], extra: dict[str, Tensor], said: str
) -> None:
    with pytest.raises(SettingError, match=said):
        StaticKDLoss()(torch.zeros(student), torch.zeros(teacher), **extra)


@pytest.mark.parametrize("arguments", [(0.0, 0.3), (math.nan, 0.3), (-1.0, 0.3), (4.0, -0.1), (4.0, math.inf)])
def test_a_temperature_or_weight_out_of_range_is_refused(arguments: tuple[float, float]) -> None:
    with pytest.raises(SettingError, match=r"temperature|kd_weight"):
        StaticKDLoss(*arguments)


def test_a_student_learns_a_teachers_distribution_from_this_loss_alone() -> None:
    torch.manual_seed(0)
    teacher, student, inputs = nn.Linear(6, 4), nn.Linear(6, 4), torch.randn(64, 6)
    wanted = teacher(inputs).detach()
    optimizer = torch.optim.AdamW(student.parameters(), lr=0.05, weight_decay=0.0)
    losses = []
    for _ in range(60):
        loss = StaticKDLoss()(student(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))

    assert losses[-1] < losses[0] / 100
