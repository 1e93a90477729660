"""Autograd functions that keep a seed's loss out of the host, and weigh each call of a seed beside it."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack, is_batchedtensor, is_legacy_batchedtensor
from torch.autograd import forward_ad

from esper.kasmina.gates.ledger import INF, TINY, Blended, Call, Fitted, Ledger, Note

WIDE = (torch.float32, torch.float64)
NOTHING = torch.zeros((), device="cpu")  # comparing with a number takes twice as long as with one without dimensions


def norm(tensor: Tensor) -> Tensor:
    """L2 norm of all elements, in float32 at least: half precision overflows at 65504."""
    value: Tensor = torch.linalg.vector_norm(tensor, dtype=None if tensor.dtype in WIDE else torch.float32)
    return value


def sample_norms(tensor: Tensor) -> Tensor:
    """L2 norm per sample (first dimension), shaped to broadcast against the tensor."""
    dtype = tensor.dtype if tensor.dtype in WIDE else torch.float32
    if tensor.ndim < 2:
        return tensor.abs().to(dtype)
    inner = 1 if tensor.ndim == 2 else tuple(range(1, tensor.ndim))
    value: Tensor = torch.linalg.vector_norm(tensor, dim=inner, keepdim=True, dtype=dtype)
    return value


def measured(row: int, h: Tensor, delta: Tensor, of_host: Tensor | None = None) -> Call:
    """`of_host`: the norms of h, where they are known."""
    return Call(row, sample_norms(h.detach()) if of_host is None else of_host, sample_norms(delta.detach()))


class Weighed(NamedTuple):
    """One call of a blended seed beside its host; nothing of it is read from the device."""

    value: Tensor  # h + weights * delta; h itself in samples that are gated away
    weights: Tensor  # per sample, shaped to broadcast against h: alpha, or 0 where the sample is gated away
    of_delta: Tensor  # norms per sample, as in Call; infinite too where the sum overflows


def weigh(h: Tensor, delta: Tensor, alpha: Tensor, limit: float, call: Call) -> Weighed:
    """A sample takes its share where h + alpha * delta is finite, and norm(delta) <= limit * norm(h).

    A norm is finite only if every element is; one whose squares overflow (beyond 1e19) counts as not finite. With
    both norms finite the sum can overflow in float16 alone. What is not finite in the host itself stays so.
    """
    of_host, of_delta = call.of_host, call.of_delta
    # A product with 0 in place of a choice, which takes four times as long; 0 * inf would be NaN.
    clean = delta.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    if h.dtype == torch.float16:
        whole = sample_norms(torch.addcmul(h, clean, alpha.to(h.dtype)))
        of_delta = torch.where((whole < INF) | ~(of_host < INF), of_delta, INF)
    # With both norms infinite their difference is not a number, and no sample sound.
    # In place they are 0 and 1 of floats at once: a bool times a float takes twice as long.
    weights = torch.sub(of_delta, of_host, alpha=limit).le_(NOTHING).mul_(alpha).to(h.dtype)
    value = torch.addcmul(h, clean, weights, out=clean if clean.stride() == h.stride() else None)
    return Weighed(value, weights, of_delta)


def all_sound(h: Tensor, call: Call, limit: float) -> bool:
    """Whether no sample is gated away; False too where that can't be said without waiting for a device.

    Never for float16, whose sum may overflow though both norms are finite.
    """
    if not h.is_cpu or type(h) is not Tensor or h.dtype == torch.float16 or not h.numel():
        return False
    return torch.sub(call.of_delta, call.of_host, alpha=limit).max().item() <= 0.0  # it is not where that is NaN


def transformed() -> bool:
    """Whether this runs below torch.func (grad, vmap, jvp) or forward-mode differentiation.

    They know no autograd function that saves or notes anything, nor a tensor's memory, and give no seed a gradient.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def mapped() -> bool:
    """Whether this runs below torch.func.vmap, where a tensor's shape lacks what is mapped over."""
    return any(level.key() == TransformType.Vmap for level in get_interpreter_stack() or ())


def batched(g: Tensor) -> bool:
    """Whether a backward is run for many gradients at once, as by torch.autograd.grad(is_grads_batched=True)."""
    return is_legacy_batchedtensor(g) or is_batchedtensor(g)


def weighed_apart(h: Tensor, delta: Tensor, alpha: Tensor, limit: float) -> Tensor:
    """The value of `weigh` for transforms, which write nothing in place; delta is a constant."""
    sound = sample_norms(delta) <= limit * sample_norms(h)
    share = delta.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) * alpha.to(h.dtype)
    return h + torch.where(sound, share, 0.0)


class Shadow(torch.autograd.Function):
    """TRAINING: the host's value and gradient, untouched; delta learns to be -mu * g, mu = rho * norm(h) / norm(g).

    A copy is returned because code downstream may change its input in place. What a call measured is noted in its
    backward, so that each is counted once: a forward that checkpointing runs again has no backward of its own, or else
    the first one had none.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, delta: Tensor, ledger: Ledger, call: Call) -> Tensor:
        ctx.save_for_backward(delta)
        ctx.ledger, ctx.call = ledger, call
        return h.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        (g,) = grads
        if batched(g):
            return g, None, None, None
        (delta,) = ctx.saved_tensors
        size, reach = norm(g), norm(ctx.call.of_host).clamp_min_(TINY)  # reach / mu = size / rho
        towards = torch.addcmul(g, delta, size / reach, value=1.0 / ctx.ledger.rho)  # g + delta / mu
        ctx.ledger.note(Fitted(ctx.call, size, norm(towards)))
        return g, towards, None, None


class Blend(torch.autograd.Function):
    """h + alpha * delta, or h in samples that are gated away. The host sees delta as a constant.

    delta gets alpha * dL/dy. What a call measured is noted in its backward, as in Shadow.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, delta: Tensor, alpha: Tensor, ledger: Ledger, call: Call, shadowing: bool
    ) -> Tensor:
        value, ctx.weights, of_delta = weigh(h, delta, alpha, ledger.limit, call)
        ctx.ledger, ctx.note = ledger, Blended(call._replace(of_delta=of_delta), sample_norms(value), shadowing)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None, None, None]:
        (g,) = grads
        if batched(g):
            return g, None, None, None, None, None
        ctx.ledger.note(ctx.note)
        return g, g * ctx.weights, None, None, None, None


def shadow(h: Tensor, delta: Tensor, ledger: Ledger, call: Call) -> Tensor:
    value: Tensor = Shadow.apply(h, delta, ledger, call)  # type: ignore[no-untyped-call]
    return value


def add(h: Tensor, delta: Tensor, alpha: Tensor, limit: float, call: Call) -> Tensor:
    """The value of `blend`, of which nothing is noted."""
    if all_sound(h, call, limit):
        return torch.add(h, delta, alpha=alpha.item())
    return weigh(h, delta, alpha, limit, call).value


def blend(
    h: Tensor, delta: Tensor, alpha: Tensor, ledger: Ledger, call: Call, *, shadowing: bool
) -> tuple[Tensor, Tensor | None]:
    """As `Blend` has it, and the norms per sample of the value, where they are known.

    Where every sample is sound it is a plain sum: torch's own node takes less time than one in Python.
    """
    if not all_sound(h, call, ledger.limit):
        value: Tensor = Blend.apply(h, delta, alpha, ledger, call, shadowing)  # type: ignore[no-untyped-call]
        return value, None
    value = torch.add(h, delta, alpha=alpha.item())
    of_value = sample_norms(value.detach())
    if value.grad_fn is not None:
        value.grad_fn.register_prehook(partial(_note, ledger, Blended(call, of_value, shadowing)))
    return value, of_value


def _note(ledger: Ledger, note: Note, grads: tuple[Tensor | None, ...]) -> None:
    """Before the sum's backward. Where the host gives no gradient it is None; `Blend` has zeros there."""
    if grads[0] is None or not batched(grads[0]):
        ledger.note(note)
