"""Where every sample is sound, blending is a plain sum; it notes and gives what the guarded one does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from esper.kasmina.config import KasminaConfig
from esper.kasmina.gates.ledger import Blended, Ledger
from esper.kasmina.isolation.functions import Blend, add, all_sound, blend, measured, sample_norms
from esper.kasmina.isolation.norm_cache import NormCache

LEDGER = KasminaConfig(rho_max=0.5)  # out of size: more than five times the host's norm
ALPHA = torch.tensor(0.3)
INF, NAN = float("inf"), float("nan")


def pair(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    h, delta = (torch.randn(6, 5, 4, generator=draw).to(dtype).requires_grad_() for _ in range(2))
    return h, delta


def noted(ledger: Ledger) -> list[Tensor]:
    (note,) = ledger.calls
    assert isinstance(note, Blended) and note.shadowing
    return [note.call.of_host, note.call.of_delta, note.of_value]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_sum_has_value_gradients_and_figures_of_the_guarded_one(dtype: torch.dtype) -> None:
    h, delta = pair(dtype)
    ledger, guarded = (Ledger(LEDGER, h.device, 1) for _ in range(2))
    call = measured(0, h, delta)

    value, norms = blend(h, delta, ALPHA, ledger, call, shadowing=True)
    expected: Tensor = Blend.apply(h, delta, ALPHA, guarded, call, True)  # type: ignore[no-untyped-call]
    own, its = (torch.autograd.grad(y.square().sum(), (h, delta)) for y in (value, expected))

    rtol, atol = (1.6e-2, 1e-2) if dtype == torch.bfloat16 else (1e-6, 1e-6)
    assert norms is not None and type(value.grad_fn).__name__ == "AddBackward0"
    for one, other in zip([value, *own, *noted(ledger)], [expected, *its, *noted(guarded)], strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)
    assert torch.equal(add(h, delta, ALPHA, ledger.limit, call), value)


@pytest.mark.parametrize(("at_host", "at_delta"), [(1.0, INF), (1.0, NAN), (1.0, 1e38), (NAN, 1.0), (1e-6, 1.0)])
def test_one_sample_that_is_not_sound_is_enough_for_the_guarded_one(at_host: float, at_delta: float) -> None:
    h, delta = (torch.ones(4, 3) for _ in range(2))
    h[2], delta[2] = at_host, at_delta

    sound = all_sound(h, measured(0, h, delta), 5.0)

    assert not sound
    assert all_sound(h[:2], measured(0, h[:2], delta[:2]), 5.0)


@pytest.mark.parametrize(
    "tensor", [torch.ones(4, 3, dtype=torch.float16), torch.ones(0, 3), torch.ones(4, 3).to("meta")]
)
def test_where_it_can_not_be_said_the_guarded_one_decides(tensor: Tensor) -> None:
    assert not all_sound(tensor, measured(0, tensor, tensor), 5.0)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_forward_that_checkpointing_runs_again_is_noted_once(reentrant: bool) -> None:
    h, delta = pair()
    ledger = Ledger(LEDGER, h.device, 1)

    def joined(h: Tensor, delta: Tensor) -> Tensor:
        value, _ = blend(h, delta, ALPHA, ledger, measured(0, h, delta), shadowing=False)
        return value.square()

    value = checkpoint(joined, h, delta, use_reentrant=reentrant)
    before = len(ledger.calls)
    torch.autograd.backward(value.sum())

    assert (before, len(ledger.calls)) == (0, 1)


def test_what_is_written_to_later_is_noted_and_differentiated_all_the_same() -> None:
    h, delta = pair()
    ledger = Ledger(LEDGER, h.device, 1)

    value, _ = blend(h, delta, ALPHA, ledger, measured(0, h, delta), shadowing=False)
    torch.autograd.backward(value.mul_(2.0).sum())

    assert len(ledger.calls) == 1 and delta.grad is not None
    assert torch.equal(delta.grad, torch.full_like(delta, 2.0 * ALPHA.item()))


class Dropped(torch.autograd.Function):
    """A host's function that gives its input no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        return None


@pytest.mark.parametrize("sound", [True, False])
def test_a_host_that_gives_its_site_no_gradient_is_differentiated_all_the_same(sound: bool) -> None:
    h, delta = pair()
    ledger = Ledger(LEDGER, h.device, 1)
    far = delta if sound else delta * 1e3

    value, _ = blend(h, far, ALPHA, ledger, measured(0, h, far), shadowing=False)
    dropped: Tensor = Dropped.apply(value)  # type: ignore[no-untyped-call]
    torch.autograd.backward(dropped.sum() + h.sum())

    assert len(ledger.calls) == 1 and h.grad is not None
    assert torch.equal(h.grad, torch.ones_like(h))


def test_norms_are_handed_on_once_for_the_very_value_as_it_was() -> None:
    cache = NormCache()
    first, other, changed = (torch.ones(4, 3) for _ in range(3))
    norms = sample_norms(first)

    cache.on(first, norms)
    taken = [cache.norms(first), cache.norms(first)]
    cache.on(first, norms)
    of_another = cache.norms(other)
    cache.on(changed, norms)
    changed.add_(1.0)

    assert taken[0] is norms and taken[1] is None
    assert of_another is None and cache.norms(changed) is None
