"""What keeping 64 seeds apart costs a step, beside the arithmetic of the seeds themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from esper.bench.agreement import DisagreementError
from esper.bench.effort import Effort
from esper.bench.figures import DERIVED, Figure
from esper.bench.row import Comparison
from esper.bench.statistics.samples import NEEDED, percentile
from esper.bench.statistics.summary import AGAIN, figures_of
from esper.bench.timing.collector import settled_collector
from esper.bench.timing.comparing import paired, warm_up
from esper.bench.work.attached import Timer
from esper.bench.work.hosts import Size
from esper.bench.work.seeds.grown import grow
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kernels.blueprints import BLUEPRINTS
from esper.leyline.lifecycle import BLENDING, PROBATIONARY, SHADOWING, TRAINING

NUM_SITES, PLACES, WIDTH, BATCH = 16, 4, 128, 128
STAGES = (TRAINING, BLENDING, SHADOWING, PROBATIONARY)
OURS, SEEDS, HOST = "64 seeds in 16 sites", "seeds, nothing between", "host alone"
OVERHEAD_MS = 5.0  # unified design, 7: isolation
ROW = Comparison(
    "kasmina-64-seeds", "kasmina", (), "ms", "a whole step of 16 layers of 128, batch of 128; of the processor"
)


def measure(effort: Effort) -> Iterator[Figure]:
    """Processor time of the one thread that all arms run in: no shared core is free for the whole of a step.

    Raises DisagreementError where the first losses differ: seeds that are new add nothing.
    """
    ours = Ours()
    turns = {SEEDS: bare_seeds(), HOST: Arm().turn, OURS: ours.turn}
    control = Timer(bare_seeds())
    losses = {name: turn() for name, turn in turns.items()}
    for name, loss in losses.items():
        if abs(loss - losses[HOST]) > 1e-4:
            raise DisagreementError(ROW.name, HOST, name, f"its first loss is {loss}, expected {losses[HOST]}")
    timers = {name: Timer(turn) for name, turn in turns.items()}
    with settled_collector():
        taken = paired(ROW, timers, effort, control)
    num = len(taken.samples[SEEDS])
    worked = {name: timer.worked[-num:] for name, timer in {**timers, SEEDS + AGAIN: control}.items()}
    yield warm_up(ROW, taken)
    yield from figures_of(ROW, worked)
    over = 1e3 * (percentile(worked[OURS], "p50") - percentile(worked[SEEDS], "p50"))
    yield Figure(ROW.name, OURS, "isolation", over, "ms", num, DERIVED, ROW.shape, target=OVERHEAD_MS)
    for name, values in ours.parts.items():
        for stat in ("p50", "p99"):
            if num >= NEEDED[stat]:
                value = percentile(values[-num:], stat)
                yield Figure(ROW.name, f"of which {name}", stat, value, "ms", num, shape=ROW.shape)


class Arm:
    """A whole step of the host: forward, backward, optimizer. A turn gives its loss."""

    def __init__(self) -> None:
        self.model = Size(WIDTH, NUM_SITES, BATCH).model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.9)
        draw = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(BATCH, WIDTH, generator=draw)
        self.targets = torch.randint(0, 10, (BATCH,), generator=draw)

    def backward(self) -> Tensor:
        loss = nn.functional.cross_entropy(self.model(self.inputs), self.targets)
        torch.autograd.backward(loss)
        return loss.detach()

    def turn(self) -> float:
        loss = self.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def bare_seeds() -> Callable[[], float]:
    """The same seeds, simply added to their sites and stepped by optimizers of their own: what they cost anyhow."""
    arm, optimizers = Arm(), []
    for at in range(NUM_SITES):
        for _ in range(PLACES):
            site, shape = arm.model.get_submodule(str(at)), torch.Size((BATCH, WIDTH))
            seed = BLUEPRINTS["lora"].build(site, shape, shape, {})
            site.register_forward_hook(lambda _, args, h, seed=seed: h + 0.5 * seed(args[0].detach(), h.detach()))
            optimizers.append(torch.optim.AdamW(seed.parameters(), lr=1e-4))

    def turn() -> float:
        loss = arm.backward()
        for optimizer in (*optimizers, arm.optimizer):
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    return turn


class Ours:
    """64 seeds, a quarter of them in each learning stage, behind slots and an executor."""

    def __init__(self) -> None:
        self.arm = Arm()
        sites = [str(at) for at in range(NUM_SITES)]
        settings = KasminaConfig(seeds_per_site=PLACES)
        self.executor = Executor(self.arm.model, sites, run_id="bench", settings=settings)
        self.arm.model(self.arm.inputs)  # every site is seen
        for at, site in enumerate(self.executor.sites):
            grow(self.executor, site, STAGES[at % len(STAGES)])
        seeds = self.executor.seeds.values()
        self.optimizers = [torch.optim.AdamW([p for _, p in seed.trainable()], lr=1e-4) for seed in seeds]
        self.parts: dict[str, list[float]] = {"begin_step": [], "observe": []}
        self.step = 0

    def turn(self) -> float:
        self.step += 1
        self._timed("begin_step", self.executor.begin_step, self.step, 0)
        loss = self.arm.backward()
        self.executor.note_loss(loss)
        gradients = [p.grad for p in self.arm.model.parameters() if p.grad is not None]
        self._timed("observe", self.executor.observe, gradients, self.step)
        for optimizer in (*self.optimizers, self.arm.optimizer):
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    def _timed(self, name: str, call: Callable[..., object], *args: Any) -> None:
        """In ms of the processor, as the step itself."""
        begun = time.thread_time_ns()
        call(*args)
        self.parts[name].append((time.thread_time_ns() - begun) / 1e6)
