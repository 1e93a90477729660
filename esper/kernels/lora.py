"""Low-rank seed: delta = B A x with B = 0 at first (LoRA, arXiv 2106.09685, without the scaling)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from esper.kernels.residual import Residual, as_output, num_features, source


class Lora(Residual):
    """Two linear maps without bias. Folds into a plain nn.Linear exactly."""

    def __init__(self, num_inputs: int, num_outputs: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Linear(num_inputs, rank, bias=False)
        self.up = nn.Linear(rank, num_outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return as_output(self.up(self.down(source(x, h))), h)

    def fold_into(self, module: nn.Module) -> bool:
        # Only the class itself: a subclass may use its weight in another way.
        if type(module) is not nn.Linear or module.weight.shape != (self.up.out_features, self.down.in_features):
            return False
        with torch.no_grad():
            module.weight.add_(self.up.weight @ self.down.weight)
        return True


def build_lora(
    module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
) -> Lora:
    num_inputs, num_outputs = num_features(input_shape, output_shape)
    return Lora(num_inputs, num_outputs, int(parameters["rank"]))
