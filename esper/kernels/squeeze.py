"""Squeeze-and-excitation as a residual (arXiv 1709.01507): channels are weighted by what the whole sample holds."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from esper.kernels.layout import Layout
from esper.kernels.residual import Residual, zeroed


class SqueezeExcite(Residual):
    """delta = gain * h * tanh(W2 relu(W1 mean(h))), W2 = b2 = 0 at first: h + delta is h * 2 sigmoid(2 z), z = W2 ...

    A gate of 1 - instead of the paper's sigmoid(0) = 1/2 - is what leaves the host alone. Never folds.
    """

    gain: Tensor  # what alpha became

    def __init__(self, layout: Layout, reduction: int) -> None:
        super().__init__()
        self.layout = layout
        self.down = nn.Linear(layout.num_outputs, max(1, layout.num_outputs // reduction))
        self.up = zeroed(nn.Linear(self.down.out_features, layout.num_outputs))
        self.register_buffer("gain", torch.ones(()))

    @property
    def reads_input(self) -> bool:
        return False

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        squeezed = h.flatten(2).mean(-1)
        gate = torch.tanh(self.up(torch.relu(self.down(squeezed))))
        return self.gain * (h * self.layout.per_channel(gate))

    def absorb(self, alpha: float) -> None:
        self.gain.mul_(alpha)  # not into the last layer: tanh is not linear


def build_se(
    module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
) -> SqueezeExcite:
    return SqueezeExcite(Layout.of(module, input_shape, output_shape), int(parameters["reduction"]))
