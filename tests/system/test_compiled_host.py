"""In a compiled host, a thousand steps of seeds through their stages compile each structure once for each class."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from esper.kasmina.blend import AlphaSchedule
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kasmina.seeds.seed import Moment
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import BLENDING, SHADOWING

# Tensors this small gain nothing from threads, which spin for milliseconds each where cores are shared.
torch.set_num_threads(1)

BLUEPRINTS = ("lora", "mlp", "norm", "conv1x1")
STEPS = 1000
STAGE_STEPS = STEPS // 4  # germinated, TRAINING, BLENDING, SHADOWING
CLASSES = 2  # of stages: those in which gradients flow, and those in which they don't
Operation = pb.SeedOperation


class Host(nn.Module):
    """Equal blocks, one for each blueprint."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in BLUEPRINTS)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.relu(block(x))
        return x


def graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


class Run:
    """A host whose forward is `compile(host)`, and its seeds."""

    def __init__(self, backend: str, compile: Callable[[nn.Module], Callable[[Tensor], Tensor]]) -> None:
        torch.manual_seed(0)
        self.host = Host()
        self.sites = [f"blocks.{index}" for index in range(len(BLUEPRINTS))]
        settings = KasminaConfig(torch_compile_backend=backend, alpha_feedback=False)
        self.executor = Executor(self.host, self.sites, run_id="test-00000000", settings=settings)
        self.forward, self.number = compile(self.host), 0
        self.batches = random.Random(1)
        self.num_late = -1

    def step(self) -> Tensor:
        self.number += 1
        self.executor.begin_step(self.number, 0)
        size = self.batches.randint(16, 64)
        x = torch.linspace(-1, 1, size * 4 * 16).reshape(size, 4, 4, 4)
        y = self.forward(x)
        torch.autograd.backward(y.square().mean())
        parameters = [p for seed in self.executor.learning().values() for _, p in seed.trainable()]
        with torch.no_grad():
            for parameter in [*parameters, *self.host.parameters()]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=1e-3)
        assert self.executor.bypassed() == []
        for parameter in [*parameters, *self.host.parameters()]:
            parameter.grad = None
        return y.detach()

    def command(self, operation: pb.SeedOperation) -> None:
        for site, blueprint in zip(self.sites, BLUEPRINTS, strict=True):
            command = pb.SeedCommand(seed_id=blueprint, operation=operation, site=site, blueprint_id=blueprint)
            outcome = self.executor.apply(command, self.number, 0)
            assert outcome.status == pb.ReceiptStatus.RECEIPT_APPLIED, outcome.detail

    def enter(self, stage: pb.SeedLifecycleStage) -> None:
        """Past the gate, which asks for a host that learns something."""
        for seed in self.executor.seeds.values():
            seed.record(stage, Moment(self.number, 0))
            if stage == BLENDING:
                seed.schedule = AlphaSchedule(0.0, 0.7, self.number, STAGE_STEPS)
                seed.meter.start_blending()

    def through_all(self) -> Tensor:
        for _ in range(3):
            self.step()
        self.command(Operation.SEED_OP_GERMINATE)
        self.step()
        settled = graphs()
        for change in (
            lambda: None,
            lambda: self.command(Operation.SEED_OP_START_TRAINING),
            lambda: self.enter(BLENDING),
            lambda: self.enter(SHADOWING),
        ):
            change()  # type: ignore[no-untyped-call]
            for _ in range(STAGE_STEPS):
                y = self.step()
        self.num_late = graphs() - settled  # in a thousand steps, of which alpha moved in 250
        return y


def compiled(host: nn.Module) -> Callable[[Tensor], Tensor]:
    forward: Callable[[Tensor], Tensor] = torch.compile(host, backend="aot_eager", dynamic=True)
    return forward


# Warnings of torch's own compiler, where it traces an autograd function.
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_a_thousand_steps_compile_each_structure_once_and_give_what_eager_gives() -> None:
    expected = Run("", lambda host: host).through_all()
    torch._dynamo.reset()
    counters.clear()
    run = Run("aot_eager", compiled)
    y = run.through_all()
    structures = CLASSES * len(BLUEPRINTS)
    # The host: once without seeds (and once more, to note what flows), and once around each seed.
    assert graphs() - structures <= 2 + 2 * len(BLUEPRINTS)
    assert run.num_late == 0
    torch.testing.assert_close(y, expected)
    assert not [seed.fault for seed in run.executor.seeds.values() if seed.fault]
