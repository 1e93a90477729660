"""What a step costs in which a large teacher is on its way, and the one before which it is taken."""

from __future__ import annotations

import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from esper.bench.effort import Effort, Mode
from esper.bench.figures import Figure
from esper.bench.row import Comparison
from esper.bench.statistics.summary import AGAIN, figures_of
from esper.bench.work.teachers.models import LARGE_TEACHER, mlp
from esper.bench.work.teachers.modes import written
from esper.tolaria.teachers.teachers import Teachers, TeacherSource

WIDTH, BATCH, MOST_STEPS = 512, 128, 20_000
NUM: Mapping[Mode, int] = {"quick": 2, "gate": 4, "full": 10}  # arrivals
ALONE, BESIDE = "alone", "while it is on its way"
ROW = Comparison("kasmina-arrival", "kasmina", (), "ms", "a step of 1 M parameters, teacher of 145 MB")


class Loop:
    """A host in training beside teachers of 36 M parameters; two of them take turns, as one is not loaded twice."""

    def __init__(self, directory: Path) -> None:
        self.model = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4)])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.inputs = torch.randn(BATCH, WIDTH)
        self.digests = [named(mlp(LARGE_TEACHER), directory, at) for at in range(2)]
        self.teachers = Teachers(TeacherSource(directory, lambda: mlp(LARGE_TEACHER)), taken=self.model.parameters)
        self.number = 0

    def step(self) -> float:
        """Of the host alone, in seconds."""
        begun = time.perf_counter()
        torch.autograd.backward(self.model(self.inputs).square().mean())
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - begun

    def arrive(self) -> tuple[list[float], float, float]:
        """Seconds of: the steps while it was on its way, what its command took, what taking it took."""
        self.number += 1
        digest, steps = self.digests[self.number % 2], list[float]()
        commanded = timed(lambda: self.teachers.begin(digest, self.number))
        while not self.teachers.has_news and len(steps) < MOST_STEPS:
            steps.append(self.step())
        return steps, commanded, timed(lambda: self.teachers.settle(self.number))


def measure(effort: Effort) -> Iterator[Figure]:
    torch.manual_seed(0)
    samples: dict[str, list[float]] = {ALONE: [], ALONE + AGAIN: [], BESIDE: []}
    once: dict[str, list[float]] = {"its command": [], "taking it": [], "loaded at the boundary instead": []}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        loop = Loop(Path(name))
        for _ in range(10):
            loop.step()
        for _ in range(NUM[effort.mode]):
            beside, command, taking = loop.arrive()
            samples[BESIDE] += beside
            for arm in (ALONE, ALONE + AGAIN):
                samples[arm] += [loop.step() for _ in beside]
            held = timed(lambda: loop.teachers.register(loop.digests[(loop.number + 1) % 2], 0))
            loop.number += 1
            for values, seconds in zip(once.values(), (command, taking, held), strict=True):
                values.append(seconds)
    yield from figures_of(ROW, samples)
    copied = torch.randn(sum(a * b for a, b in pairwise(LARGE_TEACHER)))
    once["its bytes copied"] = [timed(copied.clone) for _ in range(5)]
    for arm, values in once.items():
        taken = [1e3 * seconds for seconds in values]
        shape = "added to the step that it is taken before"
        yield Figure(ROW.name, arm, "p50", statistics.median(taken), "ms", len(taken), shape=shape, samples=taken)


def named(model: nn.Module, directory: Path, seed: int) -> str:
    """Write it under its digest."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    path = written(model, directory)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.rename(directory / f"{digest}.safetensors")
    return digest


def timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
