"""A host with sites, whose seeds are led through their stages past the gates, which ask for learning."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from esper.errors import EsperError
from esper.kasmina.blend import AlphaSchedule
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kasmina.seeds.seed import Moment
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import BLENDING

Forward = Callable[[Tensor], Tensor]
SIZES = (16, 32, 64)  # of batches, as kasmina-performance-validation.md 2.1 varies them


class RefusedInBenchError(EsperError):
    """A command that the row needs was not carried out."""

    def __init__(self, seed_id: str, detail: str) -> None:
        self.seed_id, self.detail = seed_id, detail
        super().__init__(f"{seed_id}: {detail}")


class Stack(nn.Module):
    """Equal convolutions, one site each."""

    def __init__(self, num: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(num))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.relu(block(x))
        return x


class Sited:
    """Trains by plain gradient descent on batches that are a function of the step; `compile` makes the forward."""

    def __init__(self, compile: Callable[[nn.Module], Forward], backend: str, blend_steps: int, num: int = 2) -> None:
        torch.manual_seed(0)
        self.host = Stack(num)
        settings = KasminaConfig(torch_compile_backend=backend, alpha_feedback=False)
        self.executor = Executor(
            self.host, [f"blocks.{at}" for at in range(num)], run_id="bench-00000000", settings=settings
        )
        self.forward, self.blend_steps, self.number = compile(self.host), blend_steps, 0

    def step(self) -> Tensor:
        self.number += 1
        self.executor.begin_step(self.number, 0)
        size = SIZES[self.number % len(SIZES)]
        y = self.forward(torch.linspace(-1, 1, size * 64).reshape(size, 4, 4, 4))
        torch.autograd.backward(y.square().mean())
        learning = [p for seed in self.executor.learning().values() for _, p in seed.trainable()]
        with torch.no_grad():
            for parameter in (*learning, *self.host.parameters()):
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=1e-3)
                parameter.grad = None
        return y.detach()

    def do(self, operation: pb.SeedOperation, seed_id: str, at: int = 0, blueprint: str = "lora") -> None:
        """Raises RefusedInBenchError where it is refused."""
        command = pb.SeedCommand(seed_id=seed_id, operation=operation, site=f"blocks.{at}", blueprint_id=blueprint)
        outcome = self.executor.apply(command, self.number, 0)
        if outcome.status != pb.ReceiptStatus.RECEIPT_APPLIED:
            raise RefusedInBenchError(seed_id, outcome.detail)

    def enter(self, stage: pb.SeedLifecycleStage, seed_id: str) -> None:
        """Past the gate."""
        seed = self.executor.seeds[seed_id]
        seed.record(stage, Moment(self.number, 0))
        if stage == BLENDING:
            seed.schedule = AlphaSchedule(0.0, 0.7, self.number, self.blend_steps)
            seed.meter.start_blending()
