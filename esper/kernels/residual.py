"""What every seed's module is: a residual delta(x, h) that is zero when new."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """Computes delta(x, h), in h's shape, from a site's input x and output h. Knows no stages."""

    up: nn.Linear  # the last layer: zero when new, so that germination changes nothing

    def absorb(self, alpha: float) -> None:
        """Multiply the last layer by `alpha`, so that delta alone is what alpha * delta was."""
        with torch.no_grad():
            for parameter in self.up.parameters():
                parameter.mul_(alpha)

    def fold_into(self, module: nn.Module) -> bool:
        """Add delta to the weights of `module` where that is exact; False, and nothing done, where it is not."""
        return False


def features_last(tensor: Tensor) -> Tensor:
    """Images carry their features in dimension 1, everything else in the last."""
    return tensor.movedim(1, -1) if tensor.ndim == 4 else tensor


def source(x: Tensor, h: Tensor) -> Tensor:
    """The site's input where it lines up with its output sample by sample and place by place, else the output."""
    aligned = x.ndim == h.ndim and features_last(x).shape[:-1] == features_last(h).shape[:-1]
    return features_last(x if aligned else h)


def as_output(delta: Tensor, h: Tensor) -> Tensor:
    return delta.movedim(-1, 1) if h.ndim == 4 else delta


def num_features(input_shape: torch.Size, output_shape: torch.Size) -> tuple[int, int]:
    """Features that the seed reads and writes, by the rule of `source`."""
    x, h = torch.empty(input_shape, device="meta"), torch.empty(output_shape, device="meta")
    return source(x, h).shape[-1], features_last(h).shape[-1]


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
