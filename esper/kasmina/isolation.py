"""Autograd functions that keep a seed's loss out of the host, and the walk that checks it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor

TINY = 1e-30

Note = Callable[[Tensor, Tensor], None]  # (relative fit of this backward, was the host's gradient finite)


def norm(tensor: Tensor) -> Tensor:
    """L2 norm of all elements in float32, whatever the dtype: half precision overflows at 65504."""
    value: Tensor = torch.linalg.vector_norm(tensor, dtype=torch.float32)
    return value


def sample_norms(tensor: Tensor) -> Tensor:
    """L2 norm per sample (first dimension), shaped to broadcast against the tensor."""
    if tensor.ndim < 2:
        return tensor.abs().float()
    dims = tuple(range(1, tensor.ndim))
    value: Tensor = torch.linalg.vector_norm(tensor, dim=dims, keepdim=True, dtype=torch.float32)
    return value


class Shadow(torch.autograd.Function):
    """TRAINING: the host's value and gradient, untouched; delta learns to be -mu * g, mu = rho * norm(h) / norm(g).

    A copy is returned because code downstream may change its input in place.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, delta: Tensor, rho: float, note: Note) -> Tensor:
        ctx.save_for_backward(delta)
        ctx.reach = (rho * norm(h)).clamp_min(TINY)
        ctx.note = note
        return h.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (g,) = grads
        (delta,) = ctx.saved_tensors
        size = norm(g)
        aim = delta + (g * (ctx.reach / size.clamp_min(TINY))).to(delta.dtype)
        ctx.note((norm(aim) / ctx.reach).square(), torch.isfinite(size))
        return g, g + (delta * (size / ctx.reach)).to(g.dtype), None, None


class Blend(torch.autograd.Function):
    """h + alpha * delta where `sound`, else h. The host sees delta as a constant; delta gets alpha * dL/dy."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, delta: Tensor, alpha: Tensor, sound: Tensor) -> Tensor:
        ctx.save_for_backward(alpha, sound)
        # where, not a product: 0 * inf is NaN.
        return torch.where(sound, h + alpha.to(h.dtype) * delta, h)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (g,) = grads
        alpha, sound = ctx.saved_tensors
        return g, torch.where(sound, alpha.to(g.dtype) * g, torch.zeros_like(g)), None, None


def shadow(h: Tensor, delta: Tensor, rho: float, note: Note) -> Tensor:
    value: Tensor = Shadow.apply(h, delta, rho, note)  # type: ignore[no-untyped-call]
    return value


def blend(h: Tensor, delta: Tensor, alpha: Tensor, sound: Tensor) -> Tensor:
    value: Tensor = Blend.apply(h, delta, alpha, sound)  # type: ignore[no-untyped-call]
    return value


def soundness(h: Tensor, delta: Tensor, alpha: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """(finite, small enough) per sample: isfinite(h + alpha * delta), and norm(delta) <= limit * norm(h)."""
    value = h + alpha.to(h.dtype) * delta
    dims = tuple(range(1, h.ndim))
    finite = torch.isfinite(value).all(dims, keepdim=True) if dims else torch.isfinite(value)
    return finite, sample_norms(delta) <= limit * sample_norms(h)


def stray_leaves(delta: Tensor, own: Collection[Tensor]) -> int:
    """Leaves of delta's graph that are none of `own`: 0 where the seed is isolated."""
    allowed, seen, stray = {id(parameter) for parameter in own}, set(), 0
    if delta.grad_fn is None:
        return int(delta.requires_grad and id(delta) not in allowed)
    stack: list[Any] = [delta.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        stray += variable is not None and id(variable) not in allowed
        stack.extend(parent for parent, _ in node.next_functions)
    return stray
