"""What a teacher costs: its forward at the seeds' shapes, its bytes in each mode, its loading, and checkpointing it."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from esper.bench.work.allocated import peak_bytes
from esper.bench.work.models import BENCHMARK_TEACHER, LARGE_TEACHER, TEST_TEACHER, blocks, mlp, outlined, widths_of
from esper.bench.work.teachers import alone, limits, written
from esper.kernels.teacher import int8
from esper.kernels.teacher.divergence import relative_error
from esper.kernels.teacher.settings import MODES, TeacherSettings
from esper.kernels.teacher.teacher import CheckpointedTeacher
from esper.kernels.teacher.telemetry import kept_bytes
from report import Figure, Report, by_round, quantile
from turns import turns

SHAPES = {"test": (TEST_TEACHER, 32), "benchmark": (BENCHMARK_TEACHER, 128), "large": (LARGE_TEACHER, 32)}
MEGA = 1e6
WARM = 3
NO_TORCHAO = "torchao is not installed"


def measure(report: Report, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        for teacher, (widths, batch) in SHAPES.items():
            forward(report, directory, f"teacher forward, {teacher}", mlp(widths), torch.randn(batch, widths[0]), quick)
        memory(report, directory, mlp(LARGE_TEACHER), torch.randn(32, 1024))
        loading(report, directory, 1 if quick else 10, warm=0 if quick else WARM)
    num, warm = (2, 1) if quick else (40, WARM)
    checkpointing(report, "large", mlp(LARGE_TEACHER), torch.randn(32, 1024), num, warm)
    checkpointing(report, "12 blocks", blocks(), torch.randn(512, 256), num, warm)


def forward(report: Report, directory: Path, row: str, model: nn.Module, inputs: Tensor, quick: bool) -> None:
    path = written(model, directory)
    arms: dict[str, Callable[[], object]] = {"model alone": lambda: alone(model, inputs)}
    arms["model alone, again"] = arms["model alone"]
    arms |= limits(model, len(inputs))
    low = torch.bfloat16
    settings: dict[str, TeacherSettings] = {
        mode: TeacherSettings(mode=mode) for mode in MODES if mode != "int8" or int8.available()
    }
    settings["full, bfloat16 autocast"] = TeacherSettings(amp_dtype=low)
    settings["full, held in bfloat16"] = TeacherSettings(dtype=low, amp_dtype=low)
    for arm, chosen in settings.items():
        teacher = CheckpointedTeacher(outlined(widths_of(model)), path, settings=chosen)
        error = relative_error(teacher(inputs), alone(model, inputs))
        report.put(Figure(f"{row}, relative error", arm, "count", error, "", 1))
        arms[arm] = lambda teacher=teacher: teacher(inputs)  # type: ignore[misc]
    large = sum(parameter.numel() for parameter in model.parameters()) > 10**7
    num = (3 if quick else 100) if large else (30 if quick else 600)
    samples = turns(arms, num, warm=1 if quick else WARM, per_s=1e3)
    add(report, row, samples, "model alone")
    report.add_target(row, "p50", 8.0, "ms")
    if "int8" not in arms:
        report.add_missing(row, "int8", "ms", NO_TORCHAO)


def memory(report: Report, directory: Path, model: nn.Module, inputs: Tensor) -> None:
    """Weights between and during forwards, and what a forward allocates besides."""
    path, row = written(model, directory), "teacher bytes, large"
    full = sum(parameter.nbytes for parameter in model.parameters())
    for mode in MODES:
        if mode == "int8" and not int8.available():
            report.add_missing(row, mode, "MB", NO_TORCHAO)
            continue
        teacher = CheckpointedTeacher(outlined(LARGE_TEACHER), path, settings=TeacherSettings(mode=mode))
        report.add(f"{row}, held", mode, "count", teacher.resident_bytes() / MEGA, "MB", 1)
        report.add(f"{row}, at most", mode, "count", teacher.expected_bytes(mode) / MEGA, "MB", 1)
        report.put(Figure(f"{row}, of float32", mode, "count", teacher.expected_bytes(mode) / full, "x", 1, "derived"))
        report.add(f"{row}, new in a forward", mode, "count", peak_bytes(lambda: teacher(inputs)) / MEGA, "MB", 1)  # noqa: B023
    report.put(Figure(f"{row}, of float16", "int8, as the documents say", "count", 0.25, "x", label="target"))


def loading(report: Report, directory: Path, num: int, warm: int) -> None:
    model = mlp(LARGE_TEACHER)
    path = written(model, directory)
    megabytes = path.stat().st_size / MEGA
    arms: dict[str, Callable[[], object]] = {
        "read and hashed": lambda: hashlib.sha256(path.read_bytes()).hexdigest(),
        "loaded": lambda: CheckpointedTeacher(model, path),
    }
    samples = turns(arms, num, warm=warm, per_s=1e3)
    add(report, f"teacher load, {megabytes:.0f} MB", samples, "read and hashed")
    seconds = quantile(samples["loaded"], 0.5) / 1e3 * 14_000 / megabytes
    report.put(Figure("teacher load, 14 GB", "loaded", "p50", seconds, "s", num, "derived"))
    report.add_target("teacher load, 14 GB", "p50", 5.0, "s")


def checkpointing(report: Report, name: str, model: nn.Module, inputs: Tensor, num: int, warm: int) -> None:
    """Under no_grad, as teachers run, and where a gradient flows through to the inputs."""
    teacher = CheckpointedTeacher(model)
    flowing = inputs.clone().requires_grad_()
    ways = {"plain": teacher.unchecked, "checkpointed": teacher.through}
    for arm, way in ways.items():
        kept = kept_bytes(teacher, lambda: way(flowing))  # noqa: B023
        peak = peak_bytes(lambda: torch.autograd.grad(way(flowing).sum(), flowing))  # noqa: B023
        report.add(f"gradients flow, {name}, kept", arm, "count", kept / MEGA, "MB", 1)
        report.add(f"gradients flow, {name}, new memory", arm, "count", peak / MEGA, "MB", 1)
        with torch.no_grad():
            report.add(f"no_grad, {name}, new memory", arm, "count", peak_bytes(lambda: way(inputs)) / MEGA, "MB", 1)  # noqa: B023
    arms: dict[str, Callable[[], object]] = {
        arm: lambda way=way: torch.autograd.grad(way(flowing).sum(), flowing)  # type: ignore[misc]
        for arm, way in {**ways, "plain, again": teacher.unchecked}.items()
    }
    add(report, f"gradients flow, {name}, time", turns(arms, num, warm=warm, per_s=1e3), "plain")
    report.put(Figure(f"gradients flow, {name}, time", "checkpointed", "p50", 1.2, "x", label="target"))


def add(report: Report, row: str, samples: Mapping[str, list[float]], against: str) -> None:
    for arm, values in samples.items():
        for stat, level in (("p50", 0.5), ("p99", 0.99)):
            vs = None if arm == against or stat != "p50" else by_round(values, samples[against], against)
            report.add(row, arm, stat, quantile(values, level), "ms", len(values), vs)
