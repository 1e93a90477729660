"""A host for each blueprint of the library, and a seed of it grown there."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from esper.kasmina.executor import Executor
from esper.leyline import contracts as pb
from tests.seed_kit import APPLIED, Op


class ConvHost(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(torch.relu(self.body(x)).mean((2, 3)))
        return y


class TokenHost(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.LayerNorm(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.body(x)).mean(1)
        return y


HOSTS: dict[type[nn.Module], tuple[int, ...]] = {ConvHost: (4, 3, 5, 5), TokenHost: (4, 6, 8)}


OF_CONV = ("norm", "lora", "mlp", "depthwise", "conv1x1", "conv3x3", "se")


CASES: list[tuple[type[nn.Module], str]] = [(TokenHost, "attention"), *((ConvHost, name) for name in OF_CONV)]


def germinate(executor: Executor, blueprint: str) -> None:
    for operation in (Op.SEED_OP_GERMINATE, Op.SEED_OP_START_TRAINING):
        command = pb.SeedCommand(seed_id="s0", operation=operation, site="body", blueprint_id=blueprint)
        outcome = executor.apply(command, 1, 0)
        assert outcome.status == APPLIED, outcome.detail
