"""Low-rank seed: delta = B A x with B = 0 at first (LoRA, arXiv 2106.09685, without the scaling)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from esper.kernels.folding import fold_matrix
from esper.kernels.layout import Layout
from esper.kernels.residual import Residual, zeroed


class Lora(Residual):
    """Two linear maps without bias. Folds into a plain Linear or convolution."""

    def __init__(self, layout: Layout, rank: int) -> None:
        super().__init__()
        self.layout = layout
        self.down = nn.Linear(layout.num_inputs, rank, bias=False)
        self.up = zeroed(nn.Linear(rank, layout.num_outputs, bias=False))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        features = self.layout.features_last(self.layout.source(x, h))
        return self.layout.as_output(self.up(self.down(features)))

    def fold_into(self, module: nn.Module) -> bool:
        up, down = self.up.get_parameter("weight"), self.down.weight
        with torch.no_grad():
            return fold_matrix(module, up @ down, reads_input=self.reads_input)


def build_lora(
    module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
) -> Lora:
    return Lora(Layout.of(module, input_shape, output_shape), int(parameters["rank"]))
