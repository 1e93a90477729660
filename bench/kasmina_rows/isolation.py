"""What watching one call of one seed costs, beside the call itself and beside reading the version counters alone."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from esper.kasmina.graph import batched_norms
from esper.kasmina.monitor import GradientIsolationMonitor, HostTensors
from esper.kernels.blueprints import BLUEPRINTS
from report import Figure, Report, quantile
from turns import turns

FEATURES, BATCH, WARM = 64, 32, 50
HOSTS = {"host of 34 tensors": 17, "host of 128 tensors": 64, "host of 1,000 tensors": 500}  # linear layers
NUM_SEEDS = 64


def measure(report: Report, quick: bool) -> None:
    num = 200 if quick else 4_000
    for name, num_layers in HOSTS.items():
        watch(report, name, num_layers, num)
    norms(report, num)


def watch(report: Report, row: str, num_layers: int, num: int) -> None:
    host = nn.ModuleList([nn.Linear(4, 4) for _ in range(num_layers)])
    shape = torch.Size((BATCH, FEATURES))
    seed = BLUEPRINTS["mlp"].build(nn.Linear(FEATURES, FEATURES), shape, shape, {})
    x, h = torch.randn(BATCH, FEATURES), torch.randn(BATCH, FEATURES)
    tensors = HostTensors(host)
    monitor, counter = GradientIsolationMonitor(seed, tensors), attrgetter("_version")

    def watched(*, closely: bool = False) -> None:
        _, violation = monitor.run(called, x, h, closely=closely)
        assert not violation

    arms: dict[str, Callable[[], object]] = {
        "bare call": lambda: called(seed, x, h),
        "bare call, again": lambda: called(seed, x, h),
        "watched": watched,
        "close look": lambda: watched(closely=True),
        "counters alone": lambda: [list(map(counter, tensors.watched()[1])) for _ in range(2)],
    }
    samples = turns(arms, num, warm=WARM, per_s=1e6)
    report.add_arms(row, samples, "us", against="bare call")
    middle = {arm: quantile(values, 0.5) for arm, values in samples.items()}
    over = middle["watched"] - middle["bare call"]
    report.put(Figure("monitor check", row, "p50", over / 1e3, "ms", num, label="derived"))
    report.add_target("monitor check", "p50", 0.1, "ms")
    report.put(Figure("gradient verifications", row, "rate", 1e6 / over, "a second", num, label="derived"))
    report.add_target("gradient verifications", "rate", 1_000, "a second")
    mean = over + (middle["close look"] - middle["watched"]) / 50  # one call in walk_every steps
    report.put(Figure("monitor, close looks included", row, "mean", mean / 1e3, "ms", num, label="derived"))


def norms(report: Report, num: int) -> None:
    groups = [[torch.randn(32, 64), torch.randn(32), torch.randn(64, 32), torch.randn(64)] for _ in range(NUM_SEEDS)]
    flat = [torch.cat([each.flatten() for group in groups for each in group])]

    def singly() -> list[Tensor]:
        return [torch.stack(torch._foreach_norm(group)).norm() for group in groups]

    arms: dict[str, Callable[[], object]] = {
        "one by one": singly,
        "one by one, again": singly,
        "batched": lambda: batched_norms(groups),
        "one pass over the bytes": lambda: torch.linalg.vector_norm(flat[0]),
    }
    report.add_arms(f"norms of {NUM_SEEDS} seeds", turns(arms, num, warm=WARM, per_s=1e6), "us", against="one by one")


def called(module: nn.Module, x: Tensor, h: Tensor) -> Any:
    return module(x, h)
