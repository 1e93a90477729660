"""One step of the optimizers of 64 seeds: ours, one of torch's for all of them, and one of torch's for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import count

import torch
from torch import nn

from esper.bench.arm import Ready
from esper.bench.work.seeds.planted import NUM_SEEDS, SHAPES, Planted, alone, planted
from esper.tolaria.optimizers.surroundings import Surroundings

FLOATS_MOVED = 7  # gradient, weight and both moments read; weight and both moments written
RATE, CLIP = 1e-3, 1e-3
RATES = {"8 rates": 8, "64 rates": 64}

Parameters = list[list[nn.Parameter]]


def ready(parameters: Parameters, step: Callable[[], object], *, alike: bool = True) -> Ready:
    """Gradients are made anew before each step, as a backward does, and not timed."""
    draw, home = torch.Generator().manual_seed(1), parameters[0][0].device
    drawn = partial(torch.randn, generator=draw, device=draw.device)
    gradients = [[drawn(*shape).to(home) for shape in SHAPES] for _ in range(NUM_SEEDS)]

    def backward() -> None:
        for own, values in zip(parameters, gradients, strict=True):
            for parameter, value in zip(own, values, strict=True):
                parameter.grad = value.clone()

    def answer() -> list[float]:
        flat: list[float] = torch.cat([each.detach().flatten() for each in (*parameters[0], *parameters[-1])]).tolist()
        return flat

    return Ready(step, answer if alike else None, before=backward)


def one_for_all(how: str = "foreach") -> Ready:
    """The arithmetic alone: no lease, no look at what is finite."""
    parameters = planted()
    optimizer = torch.optim.AdamW([each for own in parameters for each in own], RATE, **{how: True})  # type: ignore[arg-type]
    return ready(parameters, lambda: stepped(optimizer))


def one_each() -> Ready:
    parameters = planted()
    optimizers = [torch.optim.AdamW(own, RATE) for own in parameters]

    def step() -> None:
        for optimizer in optimizers:
            stepped(optimizer)

    return ready(parameters, step)


def stepped(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()
    optimizer.zero_grad()


def ours(how: str = "") -> Ready:
    """Clipped, or with rates of their own, seeds come to something else than without."""
    parameters, steps = planted(), count()
    clips = {f"s{number}": CLIP if how == "clipped" else 0.0 for number in range(NUM_SEEDS)}
    optimizers, num_rates = alone(Surroundings(clips=lambda: clips)), RATES.get(how, 1)
    for number, own in enumerate(parameters):
        rate = RATE * (1 + number % num_rates)
        optimizers.create(Planted(f"s{number}", own), lr=rate, fused=float(how == "fused"))
    return ready(parameters, lambda: optimizers.step(next(steps)), alike=how in ("", "fused"))


def moved() -> Ready:
    """As many bytes as the arithmetic reads and writes, copied."""
    num = FLOATS_MOVED * NUM_SEEDS * sum(math.prod(shape) for shape in SHAPES) // 2
    source, into = torch.randn(num), torch.empty(num)
    return Ready(lambda: into.copy_(source))
