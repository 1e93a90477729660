"""Seeds as their optimizers see them, and one optimizer command from the opened message to its outcome."""

from __future__ import annotations

from itertools import count

import torch
from torch import nn

from esper.bench.arm import Ready
from esper.leyline import contracts as pb
from esper.tolaria.optimizers.optimizers import Optimizers
from esper.tolaria.optimizers.surroundings import Surroundings
from esper.tolaria.reduce import SeedReducer

NUM_SEEDS, WIDTH, HIDDEN = 64, 128, 32
SHAPES = ((HIDDEN, WIDTH), (HIDDEN,), (WIDTH, HIDDEN), (WIDTH,))  # an MLP seed of 8,352 parameters
Kind = pb.OptimizerCommandType
COMMANDS = {
    "lease": pb.OptimizerCommand(command_type=Kind.OPTIMIZER_COMMAND_STEP, optimizer_id="s7", num_steps=1),
    "reset": pb.OptimizerCommand(command_type=Kind.OPTIMIZER_COMMAND_RESET_STATE, optimizer_id="s8"),
    "create": pb.OptimizerCommand(command_type=Kind.OPTIMIZER_COMMAND_CREATE_SEED, optimizer_id="s9"),
}


class Planted:
    """A seed of these parameters."""

    def __init__(self, seed_id: str, parameters: list[nn.Parameter]) -> None:
        self.seed_id, self.parameters = seed_id, parameters

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        return [(f"p{place}", parameter) for place, parameter in enumerate(self.parameters)]


def planted() -> list[list[nn.Parameter]]:
    """Parameters of 64 seeds."""
    torch.manual_seed(0)
    return [[nn.Parameter(torch.randn(*shape)) for shape in SHAPES] for _ in range(NUM_SEEDS)]


def alone(around: Surroundings) -> Optimizers:
    """Beside a host of one parameter."""
    host = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    return Optimizers(host, reduce=SeedReducer(), around=around)


def parsed() -> Ready:
    """What no command does without: its bytes read."""
    body = COMMANDS["lease"].SerializeToString()
    return Ready(lambda: pb.OptimizerCommand.FromString(body))


def applied(name: str) -> Ready:
    """One command among 64 seeds, of which its own has moments to lose. RuntimeError where it is not applied, or
    changes nothing."""
    optimizers, command, steps = alone(Surroundings()), COMMANDS[name], count(1)
    seeds = {f"s{n}": Planted(f"s{n}", own) for n, own in enumerate(planted())}
    for seed in seeds.values():
        optimizers.create(seed)

    def call() -> None:
        outcome = optimizers.apply(command, next(steps), seeds)
        if outcome.status != pb.ReceiptStatus.RECEIPT_APPLIED:
            raise RuntimeError(f"{name} was not applied: {outcome.detail}")

    def learn() -> None:
        for parameter in seeds[command.optimizer_id].parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizers.step(next(steps))

    before = optimizers.standing()
    call()
    if optimizers.standing() == before:
        raise RuntimeError(f"{name} has changed nothing")
    return Ready(call, before=None if name == "lease" else learn)
