"""What a digest of ten million parameters costs on the CPU, beside reading them once."""

from __future__ import annotations

from pathlib import Path

import torch

from esper.tolaria.digest import parameter_digest
from report import Report
from turns import turns

NUM = 10_000_000


def measure(report: Report, url: str, directory: Path, *, quick: bool) -> None:
    row, weights = "digest of 10 M parameters", torch.randn(NUM)
    bits, threads = weights.view(torch.int64), torch.get_num_threads()
    samples = turns(
        {
            "ours": lambda: parameter_digest([("weight", weights)]),
            "ours again": lambda: parameter_digest([("weight", weights)]),
            "sum of bits": lambda: int(bits.sum()),
        },
        40 if quick else 200,
        warm=3,
        per_s=1e3,
    )
    report.add_arms(row, samples, "ms", "sum of bits")
    report.add(row, "threads", "count", threads, "threads", 1)
    report.add_target(row, "p50", 1.0, "ms")
