"""The paired measurement against a computation of its own."""

from __future__ import annotations

import math
import random

import numpy as np
import torch

from esper.kasmina.paired import gains, interval
from tests.seed_kit import Bench, held_out

QUANTILE = 2.128045234184983  # of the standard normal at 1 - 0.05 / 3, from a table


def test_the_interval_equals_that_of_numpy() -> None:
    values = np.random.default_rng(0).normal(0.1, 0.5, 300)

    mean, low, high = interval(300.0, float(values.sum()), float((values**2).sum()), 0.05 / 3)

    reach = QUANTILE * values.std(ddof=1) / math.sqrt(300)
    assert np.allclose([mean, low, high], [values.mean(), values.mean() - reach, values.mean() + reach], rtol=1e-9)


def test_each_example_is_compared_with_itself() -> None:
    bench = Bench()
    bench.raise_seed("PROBATIONARY")
    seed = bench.executor.seeds["s0"]
    assert seed.module is not None
    holdout = held_out()

    found = gains(bench.host, bench.executor._slots["body"], holdout, float(seed.alpha))

    expected = []
    for x, targets in holdout.batches:
        rows = []
        for share in (0.0, float(seed.alpha)):
            with torch.no_grad():
                h = bench.host.body.forward(x)
                logits = bench.host.head(torch.relu(h + share * seed.module(x, h))).double().numpy()
            peak = logits.max(axis=1, keepdims=True)
            total = np.log(np.exp(logits - peak).sum(axis=1)) + peak[:, 0]
            rows.append(total - logits[np.arange(len(logits)), targets.numpy()])
        expected.append(rows[0] - rows[1])
    assert np.allclose(found.numpy(), np.concatenate(expected), atol=1e-5)


def test_measuring_leaves_modes_generators_and_counters_alone() -> None:
    bench = Bench()
    bench.raise_seed("PROBATIONARY")
    bench.host.act.eval()
    seed = bench.executor.seeds["s0"]
    torch.manual_seed(5)
    state, python = torch.get_rng_state(), random.getstate()
    counted = seed.meter.num_batches

    gains(bench.host, bench.executor._slots["body"], held_out(1), 1.0)

    assert (bench.host.training, bench.host.act.training) == (True, False)
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python
    assert seed.meter.num_batches == counted
    assert bench.executor._slots["body"].forced is None
