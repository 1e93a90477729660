"""Gradients of fossils, averaged over ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from esper.tolaria.fossils import FossilGradients


class Raises(torch.autograd.Function):
    """Its backward raises where it was told to."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, raises: bool) -> torch.Tensor:
        context.raises = raises
        return x.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        if context.raises:
            raise RuntimeError("out of memory")
        return gradients[0], None


def test_they_are_averaged_after_a_backward_that_raised() -> None:
    host, fossil = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    fossils = FossilGradients(lambda flat: flat / 2)  # the other rank has none
    fossils.adopt([fossil])

    def backward(raises: bool) -> None:
        (Raises.apply(host * 1.0, raises) * fossil).sum().backward()  # type: ignore[no-untyped-call]

    with pytest.raises(RuntimeError, match="out of memory"):
        backward(raises=True)
    host.grad = fossil.grad = None
    backward(raises=False)

    assert fossil.grad is not None
    assert fossil.grad.tolist() == [0.5, 0.5]
