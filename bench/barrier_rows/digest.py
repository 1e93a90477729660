"""What a digest of ten million parameters costs on the CPU, beside reading them once."""

from __future__ import annotations

import torch

from bus_rows.session import Session
from esper.tolaria.digest import parameter_digest
from turns import turns

NUM = 10_000_000


def measure(session: Session) -> None:
    row, weights, report = "digest of 10 M parameters", torch.randn(NUM), session.report
    bits, threads = weights.view(torch.int64), torch.get_num_threads()
    samples = turns(
        {
            "ours": lambda: parameter_digest([("weight", weights)]),
            "ours again": lambda: parameter_digest([("weight", weights)]),
            "sum of bits": lambda: int(bits.sum()),
        },
        session.amounts.calls,
        warm=3,
        per_s=1e3,
    )
    report.add_arms(row, samples, "ms", "sum of bits")
    report.add(row, "threads", "count", threads, "threads", 1)
    report.aim(row, "ours", "p50", 1.0)
