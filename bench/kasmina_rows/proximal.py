"""Whether a TRAINING seed needs its pull: 1,000 steps with it, and 1,000 straight through, as an open loop."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from esper.bench.effort import Effort, Mode
from esper.bench.figures import Figure
from esper.kasmina.config import KasminaConfig
from esper.kasmina.gates.ledger import Ledger
from esper.kasmina.isolation.functions import measured, norm, shadow
from esper.kernels.blueprints import BLUEPRINTS

ROW = "kasmina-pull"
RHO, BATCH, STEPS = 0.1, 64, 1_000
NUM: Mapping[Mode, int] = {"quick": 2, "gate": 5, "full": 20}  # trials
MARKS = (100, 300, 1_000)  # steps
Join = Callable[[Tensor, Tensor], Tensor]


class OpenLoop(torch.autograd.Function):
    """Straight-through: the host's value and gradient, and the seed gets the host's gradient as it is."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, delta: Tensor) -> Tensor:
        return h.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return grads[0], grads[0]


def with_pull(h: Tensor, delta: Tensor) -> Tensor:
    ledger = Ledger(KasminaConfig(rho=RHO), h.device, 1)
    return shadow(h, delta, ledger, measured(0, h, delta))


def without_pull(h: Tensor, delta: Tensor) -> Tensor:
    value: Tensor = OpenLoop.apply(h, delta)  # type: ignore[no-untyped-call]
    return value


def measure(effort: Effort) -> Iterator[Figure]:
    """Medians over trials, each of which both arms go through from the same weights on the same examples."""
    num = NUM[effort.mode]
    for arm, join in (("with the pull", with_pull), ("without it", without_pull)):
        runs = [Trial(number, join).run() for number in range(num)]
        for at, mark in enumerate(MARKS):
            for stat, place, unit in (("abs(delta) / abs(h)", 0, ""), ("loss added by the seed", 1, "nats")):
                values = [run[at][place] for run in runs]
                shape = f"after {mark:,} steps"
                yield Figure(ROW, arm, stat, statistics.median(values), unit, num, shape=shape, samples=values)


class Trial:
    """A host of two layers that learns with SGD, and an mlp seed beside it that learns with AdamW."""

    def __init__(self, number: int, join: Join) -> None:
        torch.manual_seed(number)
        self.join = join
        self.generator = torch.Generator().manual_seed(number)
        self.teacher = torch.randn(8, 24, generator=self.generator), torch.randn(24, 3, generator=self.generator)
        self.body, self.head = nn.Linear(8, 5), nn.Linear(5, 3)
        shapes = torch.Size((BATCH, 8)), torch.Size((BATCH, 5))
        self.seed = BLUEPRINTS["mlp"].build(self.body, *shapes, {})
        host = [*self.body.parameters(), *self.head.parameters()]
        self.steppers = [torch.optim.SGD(host, lr=0.05), torch.optim.AdamW(self.seed.parameters(), lr=1e-2)]
        self.held_out = self.examples(4_096)

    def examples(self, num: int) -> tuple[Tensor, Tensor]:
        inputs = torch.randn(num, 8, generator=self.generator)
        return inputs, (torch.relu(inputs @ self.teacher[0]) @ self.teacher[1]).argmax(1)

    def run(self) -> list[tuple[float, float]]:
        """(abs(delta) / abs(h), change of the held-out loss by delta) at each mark."""
        found = []
        for step in range(1, STEPS + 1):
            inputs, targets = self.examples(BATCH)
            h = self.body(inputs)
            outputs = self.head(torch.relu(self.join(h, self.seed(inputs, h.detach()))))
            torch.autograd.backward(nn.functional.cross_entropy(outputs, targets))
            for stepper in self.steppers:
                stepper.step()
                stepper.zero_grad()
            if step in MARKS:
                found.append(self.look())
        return found

    @torch.no_grad()
    def look(self) -> tuple[float, float]:
        inputs, targets = self.held_out
        h = self.body(inputs)
        delta = self.seed(inputs, h)
        on, off = (nn.functional.cross_entropy(self.head(torch.relu(value)), targets) for value in (h + delta, h))
        return float(norm(delta) / norm(h)), float(on - off)
