"""What the KD loss costs at the seeds' shapes, beside reading its logits once, and whether a student gains by it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from shutil import which

import torch
from torch import Tensor
from torch.nn import functional

from esper.bench.work.allocated import peak_bytes
from esper.bench.work.softened import documents
from esper.bench.work.students import Digits, learnt
from esper.kernels.distillation import KD_WEIGHT, TEMPERATURE, StaticKDLoss
from esper.kernels.softened import Soft, composed
from kasmina_rows.teacher import WARM, add
from report import Figure, Report, by_round
from turns import turns

# (batch, classes): the documents' validation and benchmark, an ImageNet head, and their largest: 512 of 50,000
SHAPES = ((32, 10), (128, 10), (256, 1000), (512, 50_000))
LIMITS = {"both logits read once", "both log_softmax alone"}  # which have no backward
HEAVY = 2**22  # elements beyond which a call takes a good part of a second on one core


def measure(report: Report, quick: bool) -> None:
    for shape in SHAPES:
        heavy = shape[0] * shape[1] > HEAVY
        if heavy and quick:
            report.add_missing(f"KD loss {shape[0]} x {shape[1]}", "ours", "ms", "left out of a quick run")
        else:
            loss(report, shape, 6 if heavy else (60 if quick else 600), quick)
    convergence(report, num_seeds=2 if quick else 20)


def loss(report: Report, shape: tuple[int, int], num: int, quick: bool) -> None:
    """Ours against the documents' own line (T = 3, no mask), forward and with the backward to the student's logits."""
    torch.manual_seed(0)
    student, teacher = torch.randn(shape, requires_grad=True), torch.randn(shape)
    kd = StaticKDLoss()
    arms: dict[str, Callable[[], Tensor]] = {
        "ours": lambda: kd(student, teacher),
        "ours, again": lambda: kd(student, teacher),
        "the documents'": lambda: documents(student, teacher),
        "composed of operations": lambda: composed(Soft(student, teacher, None, TEMPERATURE, KD_WEIGHT)),
        "both log_softmax alone": lambda: functional.log_softmax(teacher, -1) - functional.log_softmax(logits, -1),
        "both logits read once": lambda: logits - teacher,
    }
    logits = student.detach()
    row = f"KD loss {shape[0]} x {shape[1]}"
    add(report, f"{row}, forward", turns(arms, num, warm=WARM, per_s=1e3), "ours")
    report.add_target(f"{row}, forward", "p50", 1.0, "ms")
    if not quick and find_spec("torch._inductor") is not None and which("g++"):
        arms["compiled"] = partial(torch.compile(kd), student, teacher)
    learning = {name: backward(arm, student) for name, arm in arms.items() if name not in LIMITS}
    add(report, f"{row}, with backward", turns(learning, num, warm=WARM, per_s=1e3), "ours")
    report.add(f"{row}, new memory", "ours", "count", peak_bytes(learning["ours"]) / 1e6, "MB", 1)


def backward(forward: Callable[[], Tensor], student: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(forward(), student)


def convergence(report: Report, num_seeds: int) -> None:
    """Steps until a student of 16 hidden units reads 93 % of held-out digits, with and without the loss added."""
    data = Digits.load()
    arms: dict[str, list[float]] = {"without": [], "with": []}
    for seed in range(num_seeds):
        for arm, values in arms.items():
            values.append(float(learnt(data, seed, distilled=arm == "with").steps))
    row = "steps to 93 % of digits"
    for arm, values in arms.items():
        vs = by_round(values, arms["without"], "without") if arm == "with" else None
        report.add(row, arm, "p50", statistics.median(values), "steps", num_seeds, vs)
    report.put(Figure(row, "with, as the documents expect", "p50", 0.7, "x", label="target"))
