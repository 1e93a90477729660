"""The models whose steps are timed, and how arms take turns at single steps."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

Turn = Callable[[], object]
"""One whole training step."""


@dataclass(frozen=True, slots=True)
class Size:
    """A stack of equal blocks with a head of 10 classes, trained with SGD and momentum."""

    width: int
    num_blocks: int
    batch: int
    num_warm: int  # steps that are not counted

    @property
    def sites(self) -> list[str]:
        return [str(at) for at in range(4)]

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

    def step(self) -> torch.Tensor:
        loss: torch.Tensor = self.criterion(self.host(self.inputs), self.targets)
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


@dataclass(frozen=True, slots=True)
class Samples:
    """Milliseconds per step of each arm: as they passed, and as this thread had a processor for.

    The second says what a step costs where other work keeps the processors busy, and nothing of what it waited for.
    """

    passed: dict[str, list[float]]
    worked: dict[str, list[float]]


def in_turns(arms: Mapping[str, Turn], num: int, seed: int, num_warm: int) -> Samples:
    """A round gives every arm one step, in an order drawn anew."""
    order, names = random.Random(seed), list(arms)
    samples = Samples({name: [] for name in names}, {name: [] for name in names})
    for number in range(num + num_warm):
        order.shuffle(names)
        for name in names:
            worked, passed = time.thread_time_ns(), time.perf_counter_ns()
            arms[name]()
            passed, worked = time.perf_counter_ns() - passed, time.thread_time_ns() - worked
            if number >= num_warm:
                samples.passed[name].append(passed / 1e6)
                samples.worked[name].append(worked / 1e6)
    return samples
