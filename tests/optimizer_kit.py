"""Seeds of several parameters and a host with a history, for the tests of optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from esper.leyline import contracts as pb
from esper.tolaria.optimizers.optimizers import OptimizerOutcome, Optimizers
from esper.tolaria.optimizers.surroundings import Surroundings
from esper.tolaria.reduce import SeedReducer

torch.set_num_threads(1)

Kind = pb.OptimizerCommandType
Reason = pb.ReasonCode
APPLIED, FAILED = pb.ReceiptStatus.RECEIPT_APPLIED, pb.ReceiptStatus.RECEIPT_FAILED
SHAPES = ((3, 4), (4,), (2, 3, 5))


class Sprout:
    """A seed whose start and gradients are functions of its id and the step."""

    def __init__(self, seed_id: str = "s0", shapes: Sequence[tuple[int, ...]] = SHAPES, dtype: Any = torch.float32):
        self.seed_id = seed_id
        self.parameters = start(seed_id, shapes, dtype)

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        return [(f"p{number}", parameter) for number, parameter in enumerate(self.parameters)]

    def has_gradients(self, step: int) -> None:
        give_gradients(self.parameters, self.seed_id, step)


def start(name: str, shapes: Sequence[tuple[int, ...]] = SHAPES, dtype: Any = torch.float32) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(sum(name.encode()))
    return [nn.Parameter(torch.randn(*shape, generator=generator, dtype=dtype)) for shape in shapes]


def give_gradients(parameters: Sequence[nn.Parameter], name: str, step: int) -> None:
    generator = torch.Generator().manual_seed(1000 * step + sum(name.encode()))
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


class Host(nn.Module):
    """Two layers, with a step that is a function of the number given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.body(x).tanh())
        return y

    def loss(self, step: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(step)
        return self.forward(torch.randn(8, 4, generator=generator)).square().mean()

    def train_step(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        torch.autograd.backward(self.loss(step))
        optimizer.step()
        optimizer.zero_grad()

    def weights(self) -> list[torch.Tensor]:
        return [parameter.detach().clone() for parameter in self.parameters()]


def governed(host: nn.Module, optimizer: torch.optim.Optimizer, **around: Any) -> Optimizers:
    return Optimizers(optimizer, reduce=SeedReducer(), around=Surroundings(model=host.named_parameters, **around))


def alone(**around: Any) -> Optimizers:
    host = Host()
    return governed(host, torch.optim.SGD(host.parameters(), lr=0.1), **around)


def command(kind: pb.OptimizerCommandType, name: str = "s0", **fields: Any) -> pb.OptimizerCommand:
    return pb.OptimizerCommand(version=1, command_type=kind, optimizer_id=name, **fields)


def create(name: str = "s0", /, **hyperparameters: float) -> pb.OptimizerCommand:
    return command(Kind.OPTIMIZER_COMMAND_CREATE_SEED, name, hyperparameters=hyperparameters)


def adjustment(name: str, release: tuple[str, ...] = (), **values: float) -> pb.OptimizerAdjustment:
    return pb.OptimizerAdjustment(optimizer_id=name, hyperparameters=values, release=release)


def refusal(outcome: OptimizerOutcome) -> tuple[int, str]:
    assert outcome.status == FAILED
    return outcome.reason, outcome.detail


def same(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(map(torch.equal, a, b))


@dataclass
class Seedling:
    """A seed of one matrix, the smallest thing that an optimizer can train."""

    seed_id: str = "s0"
    weight: torch.nn.Parameter = field(default_factory=lambda: torch.nn.Parameter(torch.ones(2, 2)))

    def trainable(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [("weight", self.weight)]

    def has_gradient(self, value: float) -> None:
        self.weight.grad = torch.full((2, 2), value)


def host(lr: float = 0.1, momentum: float = 0.9) -> tuple[torch.nn.Linear, torch.optim.SGD]:
    torch.manual_seed(3)
    model = torch.nn.Linear(3, 2)
    return model, torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)


def optimizers(host_optimizer: torch.optim.Optimizer | None = None) -> Optimizers:
    return Optimizers(host_optimizer or host()[1], reduce=SeedReducer())


def step_host(model: torch.nn.Linear, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


def grown(
    host: Host, optimizer: torch.optim.Optimizer, *followed: lr_scheduler.LRScheduler, **given: float
) -> tuple[Optimizers, Sprout]:
    """A seed with five steps behind it."""
    optimizers, seed = governed(host, optimizer, schedulers=followed), Sprout()
    optimizers.create(seed, **given)
    for step in range(5):
        seed.has_gradients(step)
        optimizers.step(step)
    return optimizers, seed


def join(host: Host, optimizers: Optimizers, seed: Sprout) -> list[nn.Parameter]:
    """As the executor does: its parameters are the host's by then."""
    parameters = seed.parameters
    host.fossil = nn.ParameterList(parameters)
    seed.parameters = []
    optimizers.fossilize("s0", parameters)
    return parameters
