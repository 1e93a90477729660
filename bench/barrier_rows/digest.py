"""What a digest of ten million parameters costs on the CPU, beside reading them once, which nothing can undercut."""

from __future__ import annotations

import random

import torch

from bus_rows.session import Session
from esper.bench.arm import Ready
from esper.bench.figures import DERIVED, Figure
from esper.bench.timing.clock import timed
from esper.bench.timing.pairs import in_turns
from esper.tolaria.state.digest import parameter_digest
from report import quantile

NUM = 10_000_000
WANTED_MS = 1.0
WARM = 3
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
    digest = Ready(lambda: parameter_digest([("weight", weights)]))
    arms = {"ours": digest, "ours again": digest, LIMIT: Ready(lambda: int(bits.sum()))}
    taken = in_turns(
        {name: timed(arm) for name, arm in arms.items()}, session.amounts.calls, random.Random(0), warm=WARM
    )
    samples = {name: [1e3 * seconds for seconds in values] for name, values in taken.items()}
    report.add_arms(row, samples, "ms", LIMIT)
    report.aim(row, "ours", "p50", WANTED_MS)
    least_ms, num = quantile(samples[LIMIT], 0.5), len(samples[LIMIT])
    what = "what is asked for, of one read of the bytes"
    report.put(Figure(row, what, "ratio", WANTED_MS / least_ms, "x", num, DERIVED))
    report.add(row, LIMIT, "rate", NUM * 4 / least_ms / 1e6, "GB/s", num)
