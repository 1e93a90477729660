"""What a teacher costs: its forward at the seeds' shapes, its bytes in each mode, its loading, and checkpointing it."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from esper.kernels.teacher import int8
from esper.kernels.teacher.divergence import relative_error
from esper.kernels.teacher.settings import MODES, TeacherSettings
from esper.kernels.teacher.teacher import CheckpointedTeacher
from esper.kernels.teacher.telemetry import kept_bytes
from report import Figure, Report, by_round, quantile
from turns import turns

# Widths of the documents' three teachers, and the batch that they run them with.
TEST, BENCHMARK = (784, 512, 256, 128, 10), (784, 1024, 512, 256, 10)
LARGE = (1024, 4096, 4096, 2048, 2048, 1024, 512, 10)
SHAPES = {"test": (TEST, 32), "benchmark": (BENCHMARK, 128), "large": (LARGE, 32)}
MEGA = 1e6
WARM = 3
NO_TORCHAO = "torchao is not installed"


class Block(nn.Module):
    """Of a transformer, without the attention: most of its activations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return y


def measure(report: Report, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        for teacher, (widths, batch) in SHAPES.items():
            forward(report, directory, f"teacher forward, {teacher}", mlp(widths), torch.randn(batch, widths[0]), quick)
        memory(report, directory, mlp(LARGE), torch.randn(32, 1024))
        loading(report, directory, 1 if quick else 10, warm=0 if quick else WARM)
    num, warm = (2, 1) if quick else (40, WARM)
    checkpointing(report, "large", mlp(LARGE), torch.randn(32, 1024), num, warm)
    blocks = nn.Sequential(*[Block(256) for _ in range(12)])
    checkpointing(report, "12 blocks", blocks, torch.randn(512, 256), num, warm)


def mlp(widths: tuple[int, ...]) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [layer for given, made in pairwise(widths) for layer in (nn.Linear(given, made), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).eval()


def outlined(widths: tuple[int, ...]) -> nn.Sequential:
    """Without weights of its own: the file brings them."""
    with torch.device("meta"):
        return mlp(widths)


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


def limits(model: nn.Module, batch: int) -> dict[str, Callable[[], object]]:
    """The same products alone, in both precisions, and every weight read once: what no forward goes below."""
    weights = [module.weight.detach() for module in model.modules() if isinstance(module, nn.Linear)]
    inputs = [torch.randn(batch, weight.shape[1]) for weight in weights]
    low = [(x.bfloat16(), weight.bfloat16()) for x, weight in zip(inputs, weights, strict=True)]
    return {
        "its products alone": lambda: [torch.mm(x, w.t()) for x, w in zip(inputs, weights, strict=True)],
        "its products, bfloat16": lambda: [torch.mm(x, w.t()) for x, w in low],
        "its weights read once": lambda: [weight.sum() for weight in weights],
    }


def memory(report: Report, directory: Path, model: nn.Module, inputs: Tensor) -> None:
    """Weights between and during forwards, and what a forward allocates besides."""
    path, row = written(model, directory), "teacher bytes, large"
    full = sum(parameter.nbytes for parameter in model.parameters())
    for mode in MODES:
        if mode == "int8" and not int8.available():
            report.add_missing(row, mode, "MB", NO_TORCHAO)
            continue
        teacher = CheckpointedTeacher(outlined(LARGE), path, settings=TeacherSettings(mode=mode))
        report.add(f"{row}, held", mode, "count", teacher.resident_bytes() / MEGA, "MB", 1)
        report.add(f"{row}, at most", mode, "count", teacher.expected_bytes(mode) / MEGA, "MB", 1)
        report.put(Figure(f"{row}, of float32", mode, "count", teacher.expected_bytes(mode) / full, "x", 1, "derived"))
        report.add(f"{row}, new in a forward", mode, "count", peak_bytes(lambda: teacher(inputs)) / MEGA, "MB", 1)  # noqa: B023
    report.put(Figure(f"{row}, of float16", "int8, as the documents say", "count", 0.25, "x", label="target"))


def loading(report: Report, directory: Path, num: int, warm: int) -> None:
    model = mlp(LARGE)
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


@torch.no_grad()
def alone(model: nn.Module, inputs: Tensor) -> Tensor:
    logits: Tensor = model(inputs)
    return logits


def written(model: nn.Module, directory: Path) -> Path:
    path = directory / "teacher.safetensors"
    save_file(model.state_dict(), path)
    return path


def widths_of(model: nn.Module) -> tuple[int, ...]:
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return (linear[0].in_features, *(module.out_features for module in linear))


def peak_bytes(call: Callable[[], object]) -> int:
    """Most that one call has allocated and not yet freed at any moment, from the allocator's own events."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return torch.cuda.max_memory_allocated() - before
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        call()
    events = [event for event in profile.kineto_results.events() if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return int(peak)


def add(report: Report, row: str, samples: Mapping[str, list[float]], against: str) -> None:
    for arm, values in samples.items():
        for stat, level in (("p50", 0.5), ("p99", 0.99)):
            vs = None if arm == against or stat != "p50" else by_round(values, samples[against], against)
            report.add(row, arm, stat, quantile(values, level), "ms", len(values), vs)
