"""A student that learns from a teacher, while seeds are germinated, trained, blended and culled in it on and on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

import esper
from esper.bench.work.growth.steered import is_applied, on_seed, own_optimizer
from esper.bench.work.teachers.models import BENCHMARK_STUDENT, BENCHMARK_TEACHER, mlp
from esper.kasmina.config import KasminaConfig
from esper.kernels.distillation import StaticKDLoss
from esper.kernels.teacher.teacher import CheckpointedTeacher
from esper.leyline import contracts as pb

BATCHES = (16, 32, 64, 128)  # kasmina-performance-validation.md, 3.1: 48-hour stability test
SITES = ("0", "2")
BLUEPRINTS = ("lora", "mlp", "norm")
STEPS_PER_LIFE = 32  # an epoch each: the embargo of the last seed ends with it
TRAINING_STEPS, WINDOW = 24, 8
POOL, HELD_OUT = 4096, 256
HOST_RATE, SEED_RATE = 1e-4, 1e-2  # the host hardly moves, so that the gates see what the seed does
Op = pb.SeedOperation


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass
class Counts:
    """What there was to count so far."""

    steps: int = 0
    lives: int = 0
    commands: int = 0
    refused: int = 0  # by a gate, as gates are for
    errors: int = 0  # commands that failed otherwise, losses that are not finite
    last_error: str = ""


class Churn:
    """A session without a runtime beside it; orders are handed to its boundary, and take effect as a run's do."""

    def __init__(self, device: torch.device) -> None:
        self.model = mlp(BENCHMARK_STUDENT).train().to(device)
        self.teacher = CheckpointedTeacher(mlp(BENCHMARK_TEACHER).to(device))
        self.kd, self.counts = StaticKDLoss(), Counts()
        self.draw = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(POOL, BENCHMARK_STUDENT[0], generator=self.draw).to(device)
        self.targets = self.teacher(self.inputs).argmax(-1)  # there is something to learn, or no seed passes a gate
        optimizer = torch.optim.SGD(self.model.parameters(), lr=HOST_RATE)
        self.run = esper.attach(
            self.model,
            optimizer=optimizer,
            sites=SITES,
            required=False,
            holdout=([(self.inputs[:HELD_OUT], self.targets[:HELD_OUT])], loss_of),
            settings=KasminaConfig(window=WINDOW, read_every=1, embargo_epochs=1),
            environment={"ESPER_RUN": ""},
        )
        self.step_ms: list[float] = []  # of every step, until somebody takes them
        self.tick: Callable[[], object] = lambda: None  # called after each step
        self.train(1)  # every site is seen

    def life(self) -> None:
        """One seed, from germination to an empty slot."""
        at = self.counts.lives
        seed_id, site, blueprint = f"s{at % len(SITES)}", SITES[at % len(SITES)], BLUEPRINTS[at % len(BLUEPRINTS)]
        self._done(on_seed(self.run, Op.SEED_OP_GERMINATE, seed_id, site=site, blueprint_id=blueprint))
        self._done(own_optimizer(self.run, seed_id, SEED_RATE))
        self._done(on_seed(self.run, Op.SEED_OP_START_TRAINING, seed_id))
        self.train(TRAINING_STEPS)
        self._done(on_seed(self.run, Op.SEED_OP_START_GRAFTING, seed_id))
        self.train(STEPS_PER_LIFE - TRAINING_STEPS - 1)
        seed = self.run.executor.seeds.get(seed_id)
        if seed is not None and seed.module is not None:  # else a gate has culled it
            self._done(on_seed(self.run, Op.SEED_OP_CULL, seed_id))
        self.train(1)
        self.run.epoch_end()
        self._done(on_seed(self.run, Op.SEED_OP_RESET, seed_id))
        self.counts.lives += 1

    def train(self, num_steps: int) -> None:
        for _ in range(num_steps):
            begun = time.perf_counter()
            with self.run.step() as step:
                loss = self._loss()
                torch.autograd.backward(loss)
                self.run.optimizer.step()
                self.run.optimizer.zero_grad()
                step.loss(loss)
            self.step_ms.append((time.perf_counter() - begun) * 1e3)
            self.counts.steps += 1
            if not math.isfinite(float(loss.detach())):
                self.failed(f"loss at step {self.counts.steps} is {float(loss.detach())}")
            self.tick()

    def close(self) -> None:
        self.run.close()

    def _loss(self) -> Tensor:
        size = BATCHES[int(torch.randint(len(BATCHES), (), generator=self.draw))]
        picked = torch.randint(HELD_OUT, POOL, (size,), generator=self.draw)
        inputs = self.inputs[picked]
        logits = self.model(inputs)
        loss: Tensor = functional.cross_entropy(logits, self.targets[picked]) + self.kd(logits, self.teacher(inputs))
        return loss

    def _done(self, receipt: pb.CommandReceipt) -> None:
        self.counts.commands += 1
        if is_applied(receipt):
            return
        if receipt.reason == pb.ReasonCode.REASON_GATE_FAILED:
            self.counts.refused += 1
        else:
            self.failed(f"{pb.ReasonCode.Name(receipt.reason)}: {receipt.detail}")

    def failed(self, what: str) -> None:
        """Count an error, and remember it."""
        self.counts.errors += 1
        self.counts.last_error = what


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """Per example."""
    return functional.cross_entropy(outputs, targets, reduction="none")
