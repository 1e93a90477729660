"""What every seed's module is: a residual delta(x, h) that is zero when new."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from esper.kernels.layout import Layout


class Residual(nn.Module):
    """Computes delta(x, h), in h's shape, from a site's input x and output h. Knows no stages."""

    layout: Layout
    up: nn.Module  # the last layer: zero when new, so that germination changes nothing

    @property
    def reads_input(self) -> bool:
        """Whether delta is a function of x alone; otherwise of h alone."""
        return self.layout.reads_input

    def absorb(self, alpha: float) -> None:
        """Make alpha permanent: delta alone becomes what alpha * delta was."""
        with torch.no_grad():
            for parameter in self.up.parameters():
                parameter.mul_(alpha)

    def fold_into(self, module: nn.Module) -> bool:
        """Add delta to the weights of `module` where that is exact; False, and nothing done, where it is not."""
        return False


class Scaled(nn.Module):
    """A module of any other kind with its alpha made permanent."""

    alpha: Tensor

    def __init__(self, inner: nn.Module, alpha: Tensor) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("alpha", alpha.detach().clone())

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        delta: Tensor = self.inner(x, h)
        return self.alpha.to(delta.dtype) * delta


def zeroed(layer: nn.Module) -> nn.Module:
    """The layer with all its parameters zero."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer
