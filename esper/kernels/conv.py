"""Convolutional seeds for sites with channels in dimension 1; all their taps are 0 at first."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from esper.kernels.folding import fold_matrix, fold_taps
from esper.kernels.layout import Layout
from esper.kernels.residual import Residual, zeroed

KINDS: dict[int, type[nn.Conv1d] | type[nn.Conv2d] | type[nn.Conv3d]] = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}


class Conv(Residual):
    """One convolution with stride 1, "same" padding and no bias. Folds into a plain convolution that covers it."""

    def __init__(self, layout: Layout, kernel: int) -> None:
        super().__init__()
        self.layout = layout
        kind = KINDS[layout.ndim]
        self.up = zeroed(kind(layout.num_inputs, layout.num_outputs, kernel, padding=kernel // 2, bias=False))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        delta: Tensor = self.up(self.layout.source(x, h))
        return delta

    def fold_into(self, module: nn.Module) -> bool:
        taps = self.up.get_parameter("weight").detach()
        if taps[0, 0].numel() == 1:
            return fold_matrix(module, taps.flatten(1), reads_input=self.reads_input)
        return self.reads_input and fold_taps(module, taps)  # of h at the border, the taps would meet its padding


class Depthwise(Residual):
    """One filter per channel of the output, with "same" padding. Never folds: it mixes places of h, not of x."""

    def __init__(self, layout: Layout, radius: int) -> None:
        super().__init__()
        self.layout = layout
        width, kernel = layout.num_outputs, 2 * radius + 1
        self.up = zeroed(KINDS[layout.ndim](width, width, kernel, padding=radius, groups=width, bias=False))

    @property
    def reads_input(self) -> bool:
        return False

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        delta: Tensor = self.up(h)
        return delta


def build_conv1x1(
    module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
) -> Conv:
    return Conv(Layout.of(module, input_shape, output_shape), 1)


def build_conv3x3(
    module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
) -> Conv:
    return Conv(Layout.of(module, input_shape, output_shape), 3)


def build_depthwise(
    module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
) -> Depthwise:
    return Depthwise(Layout.of(module, input_shape, output_shape), int(parameters["radius"]))
