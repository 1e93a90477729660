"""What keeping 64 seeds apart costs a step, beside the arithmetic of the seeds themselves; and what a move costs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from esper.bench.figures import Figure
from esper.bench.work.grown import grow
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kernels.blueprints import BLUEPRINTS
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import BLENDING, PROBATIONARY, SHADOWING, TRAINING
from report import Report, quantile

NUM_SITES, PLACES, WIDTH, BATCH, WARM = 16, 4, 128, 128, 20
STAGES = (TRAINING, BLENDING, SHADOWING, PROBATIONARY)
Turn = Callable[[int], None]


def measure(report: Report, quick: bool) -> None:
    num = 40 if quick else 2_000
    ours = Ours()
    arms: dict[str, Turn] = {
        "host alone": Arm(host()).turn,
        "seeds, nothing between": bare_seeds(),
        "seeds, nothing between, again": bare_seeds(),
        "64 seeds in 16 sites": ours.turn,
    }
    samples = rounds(arms, num)
    against = "seeds, nothing between"
    report.add_arms("step with 64 seeds", samples, "ms CPU", against=against)
    over = quantile(samples["64 seeds in 16 sites"], 0.5) - quantile(samples[against], 0.5)
    report.put(Figure("isolation overhead", "64 seeds in 16 sites", "p50", over, "ms CPU", num, label="derived"))
    report.aim("isolation overhead", "64 seeds in 16 sites", "p50", 5.0)
    for name, values in ours.parts.items():
        for stat, level in (("p50", 0.5), ("p99", 0.99)):
            report.add("of which", name, stat, quantile(values[WARM:], level), "ms", len(values) - WARM)
    moves(report, 60 if quick else 2_000)


def host() -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(NUM_SITES)]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 10))


class Arm:
    """A whole step of the host: forward, backward, optimizer."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
        self.inputs, self.targets = torch.randn(BATCH, WIDTH), torch.randint(0, 10, (BATCH,))

    def backward(self) -> Tensor:
        loss = nn.functional.cross_entropy(self.model(self.inputs), self.targets)
        torch.autograd.backward(loss)
        return loss

    def turn(self, step: int) -> None:
        self.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def bare_seeds() -> Turn:
    """The same seeds, simply added to their sites and stepped by optimizers of their own: what they cost anyhow."""
    arm = Arm(host())
    optimizers = []
    for at in range(NUM_SITES):
        for _ in range(PLACES):
            site = arm.model.get_submodule(str(at))
            shape = torch.Size((BATCH, WIDTH))
            seed = BLUEPRINTS["lora"].build(site, shape, shape, {})
            site.register_forward_hook(lambda _, args, h, seed=seed: h + 0.5 * seed(args[0].detach(), h.detach()))
            optimizers.append(torch.optim.AdamW(seed.parameters(), lr=1e-4))

    def turn(step: int) -> None:
        arm.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        arm.optimizer.step()
        arm.optimizer.zero_grad()

    return turn


class Ours:
    """64 seeds, a quarter of them in each learning stage, behind slots and an executor."""

    def __init__(self) -> None:
        self.arm = Arm(host())
        self.executor = an_executor(self.arm.model)
        self.arm.backward()  # every site is seen
        for at, site in enumerate(self.executor.sites):
            grow(self.executor, site, STAGES[at % len(STAGES)])
        seeds = self.executor.seeds.values()
        self.optimizers = [torch.optim.AdamW([p for _, p in seed.trainable()], lr=1e-4) for seed in seeds]
        self.parts: dict[str, list[float]] = {"begin_step": [], "observe": []}

    def turn(self, step: int) -> None:
        self._timed("begin_step", self.executor.begin_step, step, 0)
        loss = self.arm.backward()
        self.executor.note_loss(loss)
        gradients = [p.grad for p in self.arm.model.parameters() if p.grad is not None]
        self._timed("observe", self.executor.observe, gradients, step)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.arm.optimizer.step()
        self.arm.optimizer.zero_grad()

    def _timed(self, name: str, call: Callable[..., object], *args: Any) -> None:
        begun = time.perf_counter_ns()
        call(*args)
        self.parts[name].append((time.perf_counter_ns() - begun) / 1e6)


def an_executor(model: nn.Module) -> Executor:
    sites = [str(at) for at in range(NUM_SITES)]
    return Executor(model, sites, run_id="bench", settings=KasminaConfig(seeds_per_site=PLACES))


def rounds(arms: dict[str, Turn], num: int) -> dict[str, list[float]]:
    """CPU time per step, of the one thread that all arms run in, as no shared core is free for the whole of a step.

    A round gives every arm one step, in an order drawn anew.
    """
    order, names = random.Random(0), list(arms)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for step in range(1, num + WARM + 1):
        order.shuffle(names)
        for name in names:
            begun = time.thread_time_ns()
            arms[name](step)
            samples[name].append((time.thread_time_ns() - begun) / 1e6)
    return {name: values[WARM:] for name, values in samples.items()}


def moves(report: Report, num: int) -> None:
    """One transition that no gate guards, with 64 seeds about, and the cull that follows it."""
    model = host()
    executor, taken = an_executor(model), dict[str, list[float]](START_TRAINING=[], CULL=[])
    model(torch.randn(BATCH, WIDTH))
    for at in range(num):
        site = executor.sites[at % len(executor.sites)]
        germinate = pb.SeedOperation.SEED_OP_GERMINATE
        name = f"s{at}"
        if at >= len(executor.sites):  # the site is free again
            executor._known.pop(f"s{at - len(executor.sites)}")
        executor.apply(pb.SeedCommand(seed_id=name, operation=germinate, site=site, blueprint_id="lora"), at, 0)
        for verb in taken:
            command = pb.SeedCommand(seed_id=name, operation=f"SEED_OP_{verb}")
            begun = time.perf_counter_ns()
            outcome = executor.apply(command, at, 0)
            taken[verb].append((time.perf_counter_ns() - begun) / 1e6)
            if outcome.status != pb.ReceiptStatus.RECEIPT_APPLIED:
                raise RuntimeError(f"{verb} of {name}: {outcome.detail}")
    for verb, values in taken.items():
        for stat, level in (("p50", 0.5), ("p99", 0.99)):
            report.add("state transition", verb, stat, quantile(values, level), "ms", len(values))
    report.aim("state transition", "", "p50", 0.1)
