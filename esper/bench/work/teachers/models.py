"""The documents' teachers and students, and a transformer's blocks, which keep more activations than weights."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

# Widths of the documents' models (kasmina-performance-validation.md, 2.1 and 3.1).
TEST_TEACHER, TEST_STUDENT = (784, 512, 256, 128, 10), (784, 128, 64, 10)
BENCHMARK_TEACHER, BENCHMARK_STUDENT = (784, 1024, 512, 256, 10), (784, 256, 128, 10)
LARGE_TEACHER = (1024, 4096, 4096, 2048, 2048, 1024, 512, 10)


class Block(nn.Module):
    """Of a transformer, without the attention: most of its activations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return y


def mlp(widths: tuple[int, ...]) -> nn.Sequential:
    """Linear layers of these widths with ReLUs between, from seed 0."""
    torch.manual_seed(0)
    layers = [layer for given, made in pairwise(widths) for layer in (nn.Linear(given, made), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).eval()


def outlined(widths: tuple[int, ...]) -> nn.Sequential:
    """Without weights of its own: a file brings them."""
    with torch.device("meta"):
        return mlp(widths)


def blocks(num: int = 12, width: int = 256) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[Block(width) for _ in range(num)])
