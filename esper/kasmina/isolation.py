"""Autograd functions that keep a seed's loss out of the host."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

TINY = 1e-30

# Places in the row of figures that a backward adds to a seed's sink: the relative fit, and whether there was one.
FIT, FITS = 0, 1


def norm(tensor: Tensor) -> Tensor:
    """L2 norm of all elements, in float32 at least: half precision overflows at 65504."""
    value: Tensor = torch.linalg.vector_norm(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
    return value


def sample_norms(tensor: Tensor) -> Tensor:
    """L2 norm per sample (first dimension), shaped to broadcast against the tensor."""
    if tensor.ndim < 2:
        return tensor.abs().to(torch.promote_types(tensor.dtype, torch.float32))
    dims = tuple(range(1, tensor.ndim))
    dtype = torch.promote_types(tensor.dtype, torch.float32)
    value: Tensor = torch.linalg.vector_norm(tensor, dim=dims, keepdim=True, dtype=dtype)
    return value


class Shadow(torch.autograd.Function):
    """TRAINING: the host's value and gradient, untouched; delta learns to be -mu * g, mu = rho * norm(h) / norm(g).

    A copy is returned because code downstream may change its input in place. `figures` is what the forward measured;
    it becomes the gradient of `sink`, with the fit in it, so that autograd itself sums up over calls and counts each
    once: a forward that checkpointing runs again has no backward of its own, or else the first one had none.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, delta: Tensor, rho: float, figures: Tensor, sink: Tensor) -> Tensor:
        ctx.save_for_backward(delta, (rho * norm(h)).clamp_min(TINY), figures)
        return h.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, Tensor]:
        (g,) = grads
        delta, reach, figures = ctx.saved_tensors
        size = norm(g)
        aim = delta + (g * (reach / size.clamp_min(TINY))).to(delta.dtype)
        fit, finite = (norm(aim) / reach).square(), torch.isfinite(size)
        row = figures.clone()
        row[FIT], row[FITS] = torch.where(finite, fit, torch.zeros_like(fit)), finite
        return g, g + (delta * (size / reach)).to(g.dtype), None, None, row


class Blend(torch.autograd.Function):
    """`value`, which is h + alpha * delta, where `sound`, else h. The host sees delta as a constant.

    delta gets alpha * dL/dy. `figures` becomes the gradient of `sink`, as in Shadow.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, delta: Tensor, value: Tensor, alpha: Tensor, sound: Tensor, figures: Tensor, sink: Tensor
    ) -> Tensor:
        ctx.save_for_backward(alpha, sound, figures)
        # where, not a product: 0 * inf is NaN.
        return torch.where(sound, value, h)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None, Tensor]:
        (g,) = grads
        alpha, sound, figures = ctx.saved_tensors
        return g, g * torch.where(sound, alpha.to(g.dtype), 0.0), None, None, None, None, figures


def shadow(h: Tensor, delta: Tensor, rho: float, figures: Tensor, sink: Tensor) -> Tensor:
    value: Tensor = Shadow.apply(h, delta, rho, figures, sink)  # type: ignore[no-untyped-call]
    return value
