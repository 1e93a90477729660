"""Stacks of equal blocks that slots and runs are attached to, and one whole training step of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Size:
    """A stack of equal blocks with a head of 10 classes, trained with SGD and momentum."""

    width: int
    num_blocks: int
    batch: int
    num_warm: int = 0  # steps that are not counted

    @property
    def sites(self) -> list[str]:
        return [str(at) for at in range(4)]

    @property
    def num_parameters(self) -> int:
        return self.num_blocks * self.width * (self.width + 1) + 10 * (self.width + 1)

    def model(self) -> nn.Sequential:
        torch.manual_seed(0)
        blocks = [nn.Sequential(nn.Linear(self.width, self.width), nn.ReLU()) for _ in range(self.num_blocks)]
        return nn.Sequential(*blocks, nn.Linear(self.width, 10))


SMALL = Size(width=128, num_blocks=4, batch=128, num_warm=200)  # 67,000 parameters
LARGE = Size(width=1024, num_blocks=5, batch=32, num_warm=10)  # 5.3 M parameters


class Bare:
    """Forward, backward and optimizer of the model alone."""

    def __init__(self, size: Size) -> None:
        self.host = size.model()
        self.optimizer = torch.optim.SGD(self.host.parameters(), lr=0.01, momentum=0.9)
        self.inputs, self.targets = torch.randn(size.batch, size.width), torch.randint(0, 10, (size.batch,))
        self.criterion = nn.CrossEntropyLoss()

    def loss(self) -> Tensor:
        loss: Tensor = self.criterion(self.host(self.inputs), self.targets)
        return loss

    def step(self) -> Tensor:
        loss = self.loss()
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss
