"""Bottleneck seed: delta = W2 gelu(W1 x + b1) + b2 with W2 = 0 and b2 = 0 at first."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from esper.kernels.layout import Layout
from esper.kernels.residual import Residual, zeroed


class Mlp(Residual):
    """One hidden layer, place by place. Never folds: it is not linear."""

    def __init__(self, layout: Layout, hidden: int) -> None:
        super().__init__()
        self.layout = layout
        self.down = nn.Linear(layout.num_inputs, hidden)
        self.up = zeroed(nn.Linear(hidden, layout.num_outputs))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        features = self.layout.features_last(self.layout.source(x, h))
        return self.layout.as_output(self.up(nn.functional.gelu(self.down(features))))


def build_mlp(
    module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
) -> Mlp:
    return Mlp(Layout.of(module, input_shape, output_shape), int(parameters["hidden"]))
