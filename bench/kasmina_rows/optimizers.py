"""What stepping the optimizers of 64 seeds costs, beside one of torch's for all of them and one for each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import torch
from torch import nn

from esper.bench.figures import Figure
from esper.bench.work.planted import NUM_SEEDS, SHAPES, Planted, alone, planted
from esper.tolaria.surroundings import Surroundings
from report import Report, quantile

WARM = 10
FLOATS_MOVED = 7  # gradient, weight and both moments read; weight and both moments written

Parameters = list[list[nn.Parameter]]
Step = Callable[[int], object]


def measure(report: Report, quick: bool) -> None:
    num = 40 if quick else 1_200
    step_all(report, num)


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
