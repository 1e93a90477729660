"""The seed that adds nothing: what a slot with a seed costs, without the seed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from esper.kernels.residual import Residual


class Noop(Residual):
    """delta = 0, with no parameters: it can be germinated and culled, and there is nothing in it to train."""

    @property
    def reads_input(self) -> bool:
        return False

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.zeros_like(h)

    def absorb(self, alpha: float) -> None:
        """Any share of nothing is nothing."""

    def fold_into(self, module: nn.Module) -> bool:
        return True


def build_noop(
    module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
) -> Noop:
    return Noop()
