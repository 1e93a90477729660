"""Growth as a run does it: a seed led through its stages and gates, in a session, and left in the model at its end."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

import esper
from esper.bench.work.growth.growers import RATE, Plain
from esper.bench.work.growth.steered import is_applied, on_seed, own_optimizer
from esper.bench.work.growth.tasks import Examples
from esper.kasmina.config import KasminaConfig
from esper.leyline import contracts as pb

SITE, SEED = "hidden", "grown"
EVERY = 10  # steps between two tries at the next gate
LOOKS = 3  # that G4 grants
Op = pb.SeedOperation
GATES = (Op.SEED_OP_START_GRAFTING, Op.SEED_OP_STABILIZE, Op.SEED_OP_EVALUATE)


class Grafted(Plain):
    """`looks_from`: the step from which the seed may ask to stay; before, it learns."""

    def __init__(self, data: Examples, seed: int, graft_at: int, num_steps: int) -> None:
        super().__init__(data, data.host(seed))
        settings = KasminaConfig(window=10, blend_steps=10, min_examples=len(data.held_out[1]), latency_budget_ms=1e3)
        self.run = esper.attach(
            self.model,
            optimizer=self.optimizer,
            sites=[SITE],
            required=False,
            holdout=([data.held_out], loss_of),
            settings=settings,
            environment={"ESPER_RUN": ""},
        )
        self.graft_at, self.passed, self.is_fossil = graft_at, 0, False
        left = num_steps - graft_at
        self.looks = {graft_at + left * (at + 4) // (LOOKS + 5) for at in range(LOOKS)}

    def at(self, step: int) -> None:
        if step == self.graft_at:
            parameters = {"hidden": float(self.data.task.seed_hidden)}
            receipt = on_seed(
                self.run, Op.SEED_OP_GERMINATE, SEED, site=SITE, blueprint_id="mlp", parameters=parameters
            )
            if not is_applied(receipt):
                raise RuntimeError(f"the seed did not germinate: {receipt.detail}")
            own_optimizer(self.run, SEED, RATE)
            on_seed(self.run, Op.SEED_OP_START_TRAINING, SEED)
        elif step > self.graft_at and self.passed < len(GATES) and step % EVERY == 0:
            self.passed += is_applied(on_seed(self.run, GATES[self.passed], SEED))
        elif step in self.looks and self.passed == len(GATES) and not self.is_fossil:
            self.is_fossil = is_applied(on_seed(self.run, Op.SEED_OP_FOSSILIZE, SEED))

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        with self.run.step() as step:
            loss = functional.cross_entropy(self.model(inputs), targets)
            torch.autograd.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
            step.loss(loss)

    def close(self) -> None:
        """Without a fossil the host is left as it is without the seed."""
        self.run.close()

    @property
    def flops(self) -> int:
        seeds = self.run.executor.learning().values()
        return super().flops + sum(6 * each.numel() for seed in seeds for _, each in seed.trainable())


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """Per example."""
    return functional.cross_entropy(outputs, targets, reduction="none")
