"""Self-attention over the tokens of a site (arXiv 1706.03762, by torch's SDPA), its last layer 0 at first."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from esper.kernels.layout import Layout
from esper.kernels.residual import Residual, zeroed


class Attention(Residual):
    """delta = W_o SDPA(q, k, v) of the tokens, each normalised first; [batch, tokens, features].

    Causal unless told otherwise: in a host that predicts the next token, any other seed would be shown the answer.
    It knows no padding mask.
    """

    def __init__(self, layout: Layout, heads: int, causal: bool) -> None:
        super().__init__()
        self.layout, self.heads, self.causal = layout, heads, causal
        self.qkv = nn.Linear(layout.num_inputs, 3 * layout.num_inputs, bias=False)
        self.up = zeroed(nn.Linear(layout.num_inputs, layout.num_outputs))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        tokens = self.layout.source(x, h)
        normal = nn.functional.layer_norm(tokens, tokens.shape[-1:])  # a residual stream grows with depth
        q, k, v = self.qkv(normal).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        delta: Tensor = self.up(mixed.transpose(1, 2).flatten(2))
        return delta


def build_attention(
    module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
) -> Attention:
    layout = Layout.of(module, input_shape, output_shape)
    return Attention(layout, int(parameters["heads"]), bool(parameters["causal"]))
