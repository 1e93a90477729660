"""KL divergence of softened logits: composed of torch's operations, and as one pass that takes its gradient along."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

BLOCK_ELEMENTS = 2**16  # of float32 with its four temporaries it is 1.3 MB: they stay in a core's L2


class Soft(NamedTuple):
    """Logits of [..., classes], which of the positions count (a bool each; None: all), and the two constants."""

    student: Tensor
    teacher: Tensor
    counted: Tensor | None
    temperature: float
    weight: float


def composed(soft: Soft) -> Tensor:
    """weight * T^2 * mean over positions of KL(softmax(teacher / T) || softmax(student / T)).

    Differentiable any number of times, and what a compiler fuses by itself.
    """
    ours, theirs = ((_wide(each) / soft.temperature).log_softmax(-1) for each in (soft.student, soft.teacher))
    probability = theirs.exp()
    # 0 * log 0 is 0, also where the student has log 0 in the same place.
    divergence = torch.where(probability == 0, 0.0, probability * (theirs - ours)).sum(-1)
    scale = soft.weight * soft.temperature**2
    if soft.counted is None:
        return divergence.mean() * scale
    # where, not a product: a position left out may be anything, also NaN.
    return torch.where(soft.counted, divergence, 0.0).sum() / soft.counted.sum().clamp(min=1) * scale


class SoftenedKL(torch.autograd.Function):
    """`composed`, with its gradient weight * T * (softmax(student / T) - softmax(teacher / T)) / positions.

    Hinton et al. 2015 (arXiv 1503.02531), equation 2. Made with the value, so that nothing else is kept for the
    backward, and each logit is read from memory once.
    """

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        soft = Soft(*given)
        value, gradient = fused(soft, learns=True)
        ctx.constants = soft[3:]
        ctx.save_for_backward(*soft[:3], gradient)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        student, teacher, counted, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is asked for
            loss = composed(Soft(student, teacher, counted, *ctx.constants))
            (gradient,) = torch.autograd.grad(loss, student, create_graph=True)
        elif upstream.device.type == "cpu" and float(upstream) == 1.0:
            return gradient, None, None, None, None
        return gradient * upstream, None, None, None, None


def fused(soft: Soft, *, learns: bool) -> tuple[Tensor, Tensor | None]:
    """The value of `composed`, and its gradient if the student `learns`. Logits of [positions, classes]; no graph.

    On the CPU a block of rows at a time, which stays in a core's cache.
    """
    student, device = soft.student, soft.student.device.type
    num = len(student) if soft.counted is None else soft.counted.sum().clamp(min=1).double()
    with torch.no_grad(), torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
        rows = max(1, BLOCK_ELEMENTS // student.shape[1]) if device == "cpu" else len(student)
        if rows >= len(student):
            total, gradient = _block(soft, num if learns else None)
        else:
            total, gradient = _blocks(soft, rows, num if learns else None)
        return total.mul_(soft.weight * soft.temperature**2 / num), gradient


def _blocks(soft: Soft, rows: int, num: float | Tensor | None) -> tuple[Tensor, Tensor | None]:
    gradient = None if num is None else torch.empty_like(soft.student)
    sums = []
    for start in range(0, len(soft.student), rows):
        here = slice(start, start + rows)
        counted = None if soft.counted is None else soft.counted[here]
        total, part = _block(
            soft._replace(student=soft.student[here], teacher=soft.teacher[here], counted=counted), num
        )
        sums.append(total)
        if gradient is not None and part is not None:
            gradient[here] = part
    return torch.stack(sums).sum(), gradient


def _block(soft: Soft, num: float | Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Sum of the rows' divergences; with `num` positions in all, also the gradient of `composed` for these rows."""
    ours, theirs = ((_wide(each) * (1.0 / soft.temperature)).log_softmax(-1) for each in (soft.student, soft.teacher))
    probability = theirs.exp()
    total = _total(probability, theirs.sub_(ours), soft.counted)
    if num is None:
        return total, None
    gradient = ours.exp_().sub_(probability).mul_(soft.weight * soft.temperature / num)
    if soft.counted is not None:
        gradient.masked_fill_(~soft.counted.unsqueeze(-1), 0.0)
    return total, gradient.to(soft.student.dtype)


def _total(probability: Tensor, difference: Tensor, counted: Tensor | None) -> Tensor:
    """Sum of probability * difference, where 0 * inf is 0. Rows that are left out may hold anything."""
    if counted is None and probability.device.type == "cpu":  # where a scalar can be read without waiting
        total = torch.dot(probability.view(-1), difference.view(-1))
        if not math.isnan(float(total)):
            return total
    rows = difference.mul_(probability).masked_fill_(probability == 0, 0.0).sum(-1)
    return rows.sum() if counted is None else torch.where(counted, rows, 0.0).sum()


def _wide(logits: Tensor) -> Tensor:
    """In float32 or better."""
    return logits if logits.dtype == torch.float64 else logits.float()
