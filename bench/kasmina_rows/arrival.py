"""What a step costs in which a large teacher is on its way, and the one before which it is taken."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from esper.bench.work.models import LARGE_TEACHER, mlp
from esper.bench.work.teachers import written
from esper.tolaria.teachers import Teachers, TeacherSource
from report import Report, by_round, quantile

WIDTH, BATCH, MOST_STEPS = 512, 128, 20_000


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
        """Of the host alone, in ms."""
        begun = time.perf_counter()
        torch.autograd.backward(self.model(self.inputs).square().mean())
        self.optimizer.step()
        self.optimizer.zero_grad()
        return (time.perf_counter() - begun) * 1e3

    def arrive(self) -> tuple[list[float], float, float]:
        """Times in ms of: the steps while it was on its way, what its command took, what taking it took."""
        self.number += 1
        digest, steps = self.digests[self.number % 2], list[float]()
        commanded = timed(lambda: self.teachers.begin(digest, self.number))
        while not self.teachers.has_news and len(steps) < MOST_STEPS:
            steps.append(self.step())
        return steps, commanded, timed(lambda: self.teachers.settle(self.number))


def measure(report: Report, quick: bool) -> None:
    torch.manual_seed(0)
    samples: dict[str, list[float]] = {"alone": [], "alone, again": [], "while it is on its way": []}
    commanded, taken, held = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        loop = Loop(Path(name))
        for _ in range(10):
            loop.step()
        for _ in range(2 if quick else 10):
            beside, command, taking = loop.arrive()
            commanded.append(command)
            taken.append(taking)
            samples["while it is on its way"] += beside
            for arm in ("alone", "alone, again"):
                samples[arm] += [loop.step() for _ in beside]
            held.append(timed(lambda: loop.teachers.register(loop.digests[(loop.number + 1) % 2], 0)))
            loop.number += 1
    add(report, "step, teacher of 145 MB", samples, "alone")
    once: dict[str, list[float]] = {
        "its command": commanded,
        "taking it": taken,
        "loaded at the boundary instead": held,
    }
    copied = torch.randn(sum(a * b for a, b in pairwise(LARGE_TEACHER)))
    once["limit: its bytes copied"] = [timed(copied.clone) for _ in range(5)]
    for arm, values in once.items():
        report.add("the step it is taken before, added", arm, "p50", quantile(values, 0.5), "ms", len(values))


def add(report: Report, row: str, samples: Mapping[str, list[float]], against: str) -> None:
    for arm, values in samples.items():
        for stat, level in (("p50", 0.5), ("p99", 0.99)):
            vs = None if arm == against or stat != "p50" else by_round(values, samples[against], against)
            report.add(row, arm, stat, quantile(values, level), "ms", len(values), vs)


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
    return (time.perf_counter() - begun) * 1e3
