"""Affine seed, as of a normalisation layer: delta = scale * h + shift per channel, both 0 at first."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from esper.kernels.folding import fold_affine
from esper.kernels.layout import Layout
from esper.kernels.residual import Residual


class Norm(Residual):
    """Two vectors. Folds into whatever ends with a weight and a bias per channel."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        self.scale = nn.Parameter(torch.zeros(layout.num_outputs))
        self.shift = nn.Parameter(torch.zeros(layout.num_outputs))

    @property
    def reads_input(self) -> bool:
        return False

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return h * self.layout.per_channel(self.scale) + self.layout.per_channel(self.shift)

    def absorb(self, alpha: float) -> None:
        with torch.no_grad():
            self.scale.mul_(alpha)
            self.shift.mul_(alpha)

    def fold_into(self, module: nn.Module) -> bool:
        return fold_affine(module, self.scale.detach(), self.shift.detach())


def build_norm(
    module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
) -> Norm:
    return Norm(Layout.of(module, input_shape, output_shape))
