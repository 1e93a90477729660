"""What the KD loss costs at the seeds' shapes, beside reading its logits once, and whether a student gains by it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from shutil import which

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from esper.kernels.distillation import KD_WEIGHT, TEMPERATURE, StaticKDLoss
from esper.kernels.softened import Soft, composed
from kasmina_rows.teacher import WARM, add, peak_bytes
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


def documents(student: Tensor, teacher: Tensor) -> Tensor:
    soft = functional.softmax(teacher / 3.0, dim=-1)
    return functional.kl_div(functional.log_softmax(student / 3.0, dim=-1), soft, reduction="batchmean") * 9.0


def backward(forward: Callable[[], Tensor], student: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(forward(), student)


def convergence(report: Report, num_seeds: int) -> None:
    """Steps until a student of 16 hidden units reads 93 % of held-out digits, with and without the loss added."""
    inputs, classes = (torch.tensor(values) for values in load_digits(return_X_y=True))
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    images, targets = (inputs / 16.0).float()[order], classes.long()[order]
    cut = len(images) * 2 // 3
    teacher = trained_teacher(images[:cut], targets[:cut])
    arms: dict[str, list[float]] = {"without": [], "with": []}
    for seed in range(num_seeds):
        for arm, logits in (("without", None), ("with", teacher(images).detach())):
            arms[arm].append(float(steps_to_learn(seed, images, targets, cut, logits)))
    row = "steps to 93 % of digits"
    for arm, values in arms.items():
        vs = by_round(values, arms["without"], "without") if arm == "with" else None
        report.add(row, arm, "p50", statistics.median(values), "steps", num_seeds, vs)
    report.put(Figure(row, "with, as the documents expect", "p50", 0.7, "x", label="target"))


def trained_teacher(images: Tensor, targets: Tensor) -> nn.Module:
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        torch.autograd.backward(functional.cross_entropy(teacher(images), targets))
        optimizer.step()
    return teacher.eval()


def steps_to_learn(seed: int, images: Tensor, targets: Tensor, cut: int, logits: Tensor | None) -> int:
    torch.manual_seed(seed)
    student = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    optimizer, kd = torch.optim.AdamW(student.parameters(), lr=3e-3), StaticKDLoss()
    for step in range(1, 2_000):
        batch = torch.randint(0, cut, (32,))
        outputs = student(images[batch])
        value = functional.cross_entropy(outputs, targets[batch])
        if logits is not None:
            value = value + kd(outputs, logits[batch])
        optimizer.zero_grad()
        torch.autograd.backward(value)
        optimizer.step()
        if step % 5 == 0 and read(student, images[cut:], targets[cut:]) >= 0.93:
            return step
    return 2_000


@torch.no_grad()
def read(student: nn.Module, images: Tensor, targets: Tensor) -> float:
    return float((student(images).argmax(-1) == targets).float().mean())
