"""The paired measurement against a computation of its own."""

from __future__ import annotations

import math
import random

import numpy as np
import torch

from esper.kasmina.gates.ablation import Holdout, gains, interval
from tests.seed_kit import FAILED, Bench, Host, Op, Reason, held_out, loss_of, new_host

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


def test_held_out_examples_that_the_host_takes_no_more_are_unmeasured_and_end_nothing() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    modes = [module.training for module in bench.host.modules()]
    bench.host.double()  # and not its held-out examples

    outcome = bench.do(Op.SEED_OP_START_GRAFTING)

    assert (outcome.status, outcome.reason, bench.stage()) == (FAILED, Reason.REASON_GATE_FAILED, "TRAINING")
    assert "probe_change is unmeasured" in outcome.detail and "held-out examples: RuntimeError: " in outcome.detail
    assert [module.training for module in bench.host.modules()] == modes
    assert bench.executor._slots["body"].forced is None


def test_a_loss_that_raises_culls_a_seed_at_its_look_and_ends_nothing() -> None:
    raises: list[bool] = []

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if raises:
            raise ValueError("no such class")
        return loss_of(outputs, targets)

    bench = Bench(holdout=Holdout(held_out().batches, loss))
    bench.raise_seed("PROBATIONARY")
    raises.append(True)

    outcome = bench.do(Op.SEED_OP_FOSSILIZE)

    assert (outcome.status, outcome.culled, bench.stage()) == (FAILED, True, "EMBARGOED")
    assert "held-out examples: ValueError: no such class" in outcome.detail


def test_one_loss_for_all_examples_is_told_at_the_first_gate_that_measures_it() -> None:
    bench = Bench(holdout=Holdout(held_out().batches, lambda *given: loss_of(*given).mean()))
    bench.raise_seed("TRAINING")

    outcome = bench.do(Op.SEED_OP_START_GRAFTING)

    assert (outcome.status, bench.stage()) == (FAILED, "TRAINING")
    assert "one loss for 128 examples; expected one each, as by reduction='none'" in outcome.detail


class Observed(Host):
    """Divides by what it has seen in eval mode, as a quantized model whose observers nobody has switched off."""

    def __init__(self) -> None:
        super().__init__()
        self.peak: torch.Tensor
        self.count: torch.Tensor
        self.total: torch.Tensor
        self.register_buffer("peak", torch.zeros(0))
        self.register_buffer("count", torch.tensor(1.0))
        self.register_buffer("total", torch.tensor(0.0))
        self.register_buffer("ones", torch.ones(1).expand(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            self.peak.resize_(1).fill_(x.abs().max())
            self.count = self.count + 1.0
            self.total.data.add_(x.abs().sum())  # which its version does not tell, as where a fused kernel writes
        return super().forward(x / (self.peak.sum() + self.count + self.total))


def test_what_the_host_writes_into_its_buffers_while_it_is_measured_is_undone() -> None:
    bench = Bench(host=new_host(Observed))
    bench.raise_seed("TRAINING")
    host, slot = bench.host, bench.executor._slots["body"]
    kept = {name: (buffer, buffer.clone()) for name, buffer in host.named_buffers()}

    found = gains(host, slot, held_out(), 0.0)

    assert not found.any()  # with the seed off both times, from the same buffers
    assert all(buffer is kept[name][0] and torch.equal(buffer, kept[name][1]) for name, buffer in host.named_buffers())


def test_a_host_that_writes_into_its_buffers_is_the_same_without_the_hook_of_a_slot() -> None:
    bench = Bench(host=new_host(Observed))
    bench.train(2)

    assert bench.executor._collector.differing(bench.executor._slots["body"]) == 0.0
