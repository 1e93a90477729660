"""Bottleneck seed: delta = W2 gelu(W1 x + b1) + b2 with W2 = 0 and b2 = 0 at first."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from esper.kernels.residual import Residual, as_output, num_features, source


class Mlp(Residual):
    """One hidden layer on the site's input. Never folds: it is not linear."""

    def __init__(self, num_inputs: int, num_outputs: int, hidden: int) -> None:
        super().__init__()
        self.down = nn.Linear(num_inputs, hidden)
        self.up = nn.Linear(hidden, num_outputs)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return as_output(self.up(nn.functional.gelu(self.down(source(x, h)))), h)


def build_mlp(
    module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
) -> Mlp:
    num_inputs, num_outputs = num_features(input_shape, output_shape)
    return Mlp(num_inputs, num_outputs, int(parameters["hidden"]))
