"""What a digest of ten million parameters costs on the CPU, beside reading them once, which nothing can undercut."""

from __future__ import annotations

import torch

from bus_rows.session import Session
from esper.bench.figures import DERIVED, Figure
from esper.tolaria.digest import parameter_digest
from report import quantile
from turns import turns

NUM = 10_000_000
WANTED_MS = 1.0
LIMIT = "sum of bits"
"""One read of the same bytes by one thread: what it takes is the least that a digest of every element can."""


def measure(session: Session) -> None:
    """By one thread: two wait for one another wherever others want the cores too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        by_one_thread(session)
    finally:
        torch.set_num_threads(threads)


def by_one_thread(session: Session) -> None:
    row, weights, report = "digest of 10 M parameters, one thread", torch.randn(NUM), session.report
    bits = weights.view(torch.int64)
    samples = turns(
        {
            "ours": lambda: parameter_digest([("weight", weights)]),
            "ours again": lambda: parameter_digest([("weight", weights)]),
            LIMIT: lambda: int(bits.sum()),
        },
        session.amounts.calls,
        warm=3,
        per_s=1e3,
    )
    report.add_arms(row, samples, "ms", LIMIT)
    report.aim(row, "ours", "p50", WANTED_MS)
    least_ms = quantile(samples[LIMIT], 0.5)
    asked = Figure(
        row,
        "what is asked for, of one read of the bytes",
        "ratio",
        WANTED_MS / least_ms,
        "x",
        len(samples[LIMIT]),
        DERIVED,
    )
    report.put(asked)
    report.add(row, LIMIT, "rate", NUM * 4 / least_ms / 1e6, "GB/s", len(samples[LIMIT]))
