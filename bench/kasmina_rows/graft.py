"""What a seed's germination costs the step that it falls into, with its kernel pooled and without."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import torch
from torch import nn

from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kasmina.germination import Findings
from esper.kasmina.seed import Seed
from esper.leyline import contracts as pb
from report import Report, quantile

NUM_SITES, WIDTH, BATCH, WARM = 16, 128, 128, 32
GERMINATE = pb.SeedOperation.SEED_OP_GERMINATE


def measure(report: Report, quick: bool) -> None:
    bench, samples = Bench(), dict[str, list[float]]()
    arms: dict[str, Callable[[str], float]] = {
        "limit: pop and assign": bench.limit,
        "control: apply to no seed": bench.refused,
        "pool to slot": bench.grafted,
        "pool to slot, again": bench.grafted,
        "pool to slot, and AdamW": bench.grafted_with_optimizer,
        "GERMINATE, pooled": bench.pooled,
        "GERMINATE, pooled, again": bench.pooled,
        "GERMINATE, built": bench.built,
    }
    order, names = random.Random(0), list(arms)
    for at in range((60 if quick else 2_000) + WARM):
        order.shuffle(names)
        for name in names:
            samples.setdefault(name, []).append(arms[name](str(at % NUM_SITES)))
    for name in arms:
        values = samples[name][WARM:]
        for stat, level in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            report.add("graft of a seed", name, stat, quantile(values, level), "ms", len(values))
    report.add_target("graft of a seed", "p95", 0.05, "ms")


class Bench:
    """A host with 16 sites and an executor; each measurement leaves its site as it found it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(NUM_SITES)]
        self.host = nn.Sequential(*blocks, nn.Linear(WIDTH, 10))
        sites = [str(at) for at in range(NUM_SITES)]
        self.executor = Executor(self.host, sites, run_id="bench", settings=KasminaConfig())
        self.host(torch.randn(BATCH, WIDTH))  # every site is seen
        self.seeds = {site: self._germinated(site) for site in self.executor.sites}

    def limit(self, site: str) -> float:
        """What no graft does without: finding a module, and hanging it up."""
        pool = {site: nn.Sequential(nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, WIDTH, bias=False))}
        self.seeds[site].module = None
        begun = time.perf_counter_ns()
        self.seeds[site].module = pool.pop(site)
        return since(begun)

    def refused(self, site: str) -> float:
        """A command that finds nothing to do. A kernel is built before it, as before the others: caches cool."""
        self.executor.kernels.prepare(site, "lora", {})
        command = pb.SeedCommand(seed_id="nobody", operation=pb.SeedOperation.SEED_OP_CULL)
        begun = time.perf_counter_ns()
        self.executor.apply(command, 0, 0)
        took = since(begun)
        self.executor.kernels.pool.clear()
        return took

    def grafted(self, site: str) -> float:
        """From the pool into its slot, where the next forward runs it."""
        return self._grafted(site, lambda seed: None)

    def grafted_with_optimizer(self, site: str) -> float:
        return self._grafted(site, lambda seed: torch.optim.AdamW([each for _, each in seed.trainable()]))

    def _grafted(self, site: str, then: Callable[[Seed], object]) -> float:
        kernels, slot, seed = self.executor.kernels, self.executor._slots[site], self.seeds[site]
        kernels.prepare(site, "lora", {})
        seed.module = None  # what leaves is freed before the clock starts
        begun = time.perf_counter_ns()
        kernel = kernels.load_kernel(kernels.next_id(site, "lora", {}))
        assert isinstance(kernel.findings, Findings)
        seed.module = kernel.module
        slot.settle(seed, kernel.findings.prepared)
        then(seed)
        took = since(begun)
        slot.settle(None)
        return took

    def pooled(self, site: str) -> float:
        """The whole command: agreement of the ranks, gate G0 and its record too."""
        self.executor.kernels.prepare(site, "lora", {})
        return self.built(site)

    def built(self, site: str) -> float:
        command = pb.SeedCommand(seed_id=site, operation=GERMINATE, site=site, blueprint_id="lora")
        begun = time.perf_counter_ns()
        outcome = self.executor.apply(command, 0, 0)
        took = since(begun)
        if outcome.status != pb.ReceiptStatus.RECEIPT_APPLIED:
            raise RuntimeError(f"seed at {site} did not germinate: {outcome.detail}")
        self.executor._known.pop(site)
        self.executor._slots[site].settle(None)
        return took

    def _germinated(self, site: str) -> Seed:
        command = pb.SeedCommand(seed_id=site, operation=GERMINATE, site=site, blueprint_id="lora")
        self.executor.apply(command, 0, 0)
        self.executor._slots[site].settle(None)
        return self.executor._known.pop(site)


def since(begun: int) -> float:
    """Milliseconds."""
    return (time.perf_counter_ns() - begun) / 1e6
