"""What stepping the optimizers of 64 seeds costs, beside one of torch's for all of them and one for each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import torch
from torch import nn

from esper.leyline import contracts as pb
from esper.tolaria.optimizers import Optimizers
from esper.tolaria.reduce import SeedReducer
from esper.tolaria.surroundings import Surroundings
from report import Figure, Report, quantile

NUM_SEEDS, WIDTH, HIDDEN, WARM = 64, 128, 32, 10
SHAPES = ((HIDDEN, WIDTH), (HIDDEN,), (WIDTH, HIDDEN), (WIDTH,))  # an MLP seed of 8,352 parameters
FLOATS_MOVED = 7  # gradient, weight and both moments read; weight and both moments written

Parameters = list[list[nn.Parameter]]
Step = Callable[[int], object]


class Planted:
    """A seed as its optimizer sees it."""

    def __init__(self, seed_id: str, parameters: list[nn.Parameter]) -> None:
        self.seed_id, self.parameters = seed_id, parameters

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        return [(f"p{place}", parameter) for place, parameter in enumerate(self.parameters)]


def measure(report: Report, quick: bool) -> None:
    num = 40 if quick else 1_200
    step_all(report, num)
    commands(report, num * 10)


def step_all(report: Report, num: int) -> None:
    makers: dict[str, Callable[[Parameters], Step]] = {
        "one AdamW": one_for_all(foreach=True),
        "one AdamW, again": one_for_all(foreach=True),
        "one AdamW, fused": one_for_all(fused=True),
        "64 AdamW": one_each,
        "ours": ours(),
        "ours, clipped": ours(clip=1e-3),
        "ours, fused": ours(fused=1.0),
        "ours, 8 rates": ours(num_rates=8),
        "ours, 64 rates": ours(num_rates=64),
    }
    arms = {name: (parameters, maker(parameters)) for name, maker in makers.items() if (parameters := planted())}
    samples = rounds(arms, num)
    row = f"step of {NUM_SEEDS} seeds"
    report.add_arms(row, samples, "ms", against="one AdamW")
    moved = sum(each.numel() for each in arms["ours"][0][0]) * NUM_SEEDS * FLOATS_MOVED * 4
    seconds = moved / bandwidth()
    report.put(Figure(row, "memory alone", "p50", seconds * 1e3, "ms", label="derived"))
    ratio = quantile(samples["ours"], 0.5) / 1e3 / seconds
    report.put(Figure(row, "ours over memory alone", "p50", ratio, "x", num, label="derived"))


def one_for_all(**options: bool) -> Callable[[Parameters], Step]:
    """The arithmetic alone: no lease, no look at what is finite."""

    def make(parameters: Parameters) -> Step:
        optimizer = torch.optim.AdamW([each for own in parameters for each in own], **options)  # type: ignore[arg-type]

        def step(_: int) -> None:
            optimizer.step()
            optimizer.zero_grad()

        return step

    return make


def one_each(parameters: Parameters) -> Step:
    optimizers = [torch.optim.AdamW(own) for own in parameters]

    def step(_: int) -> None:
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


def ours(num_rates: int = 1, clip: float = 0.0, fused: float = 0.0) -> Callable[[Parameters], Step]:
    def make(parameters: Parameters) -> Step:
        clips = {f"s{number}": clip for number in range(NUM_SEEDS)}
        optimizers = alone(Surroundings(clips=lambda: clips))
        for number, own in enumerate(parameters):
            optimizers.create(Planted(f"s{number}", own), lr=1e-3 * (1 + number % num_rates), fused=fused)
        return optimizers.step

    return make


def alone(around: Surroundings) -> Optimizers:
    host = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    return Optimizers(host, reduce=SeedReducer(), around=around)


def planted() -> Parameters:
    torch.manual_seed(0)
    return [[nn.Parameter(torch.randn(*shape)) for shape in SHAPES] for _ in range(NUM_SEEDS)]


def rounds(arms: dict[str, tuple[Parameters, Step]], num: int) -> dict[str, list[float]]:
    """Milliseconds a step; gradients are made anew before each, as a backward does, and not timed."""
    draw, order = random.Random(0), list(arms)
    gradients = [[torch.randn(*shape) for shape in SHAPES] for _ in range(NUM_SEEDS)]
    samples: dict[str, list[float]] = {name: [] for name in order}
    for turn in range(WARM + num):
        draw.shuffle(order)
        for name in order:
            parameters, step = arms[name]
            for own, values in zip(parameters, gradients, strict=True):
                for parameter, value in zip(own, values, strict=True):
                    parameter.grad = value.clone()
            begun = time.perf_counter_ns()
            step(turn)
            if turn >= WARM:
                samples[name].append((time.perf_counter_ns() - begun) / 1e6)
    return samples


def bandwidth() -> float:
    """Bytes a second that a copy larger than the caches reads and writes, one thread; the best of ten."""
    source, into = torch.randn(1 << 24), torch.empty(1 << 24)
    best = float("inf")
    for _ in range(10):
        begun = time.perf_counter_ns()
        into.copy_(source)
        best = min(best, (time.perf_counter_ns() - begun) / 1e9)
    return 2 * source.nbytes / best


def commands(report: Report, num: int) -> None:
    """One optimizer command, from the opened message to its outcome."""
    optimizers, seeds = alone(Surroundings()), {f"s{n}": Planted(f"s{n}", own) for n, own in enumerate(planted())}
    for seed in seeds.values():
        optimizers.create(seed)
    kind = pb.OptimizerCommandType
    lease = pb.OptimizerCommand(command_type=kind.OPTIMIZER_COMMAND_STEP, optimizer_id="s7", num_steps=1)
    reset = pb.OptimizerCommand(command_type=kind.OPTIMIZER_COMMAND_RESET_STATE, optimizer_id="s8")
    anew = pb.OptimizerCommand(command_type=kind.OPTIMIZER_COMMAND_CREATE_SEED, optimizer_id="s9")
    samples: dict[str, list[float]] = {"lease": [], "lease, again": [], "reset": [], "create": []}
    for step in range(1, num + 1):
        for name, command in zip(samples, (lease, lease, reset, anew), strict=True):
            begun = time.perf_counter_ns()
            optimizers.apply(command, step, seeds)
            samples[name].append((time.perf_counter_ns() - begun) / 1e6)
    report.add_arms("optimizer command", samples, "ms", against="lease")
    report.add_target("optimizer command", "p50", 1.0, "ms")
