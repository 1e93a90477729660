"""One rank of two: trains with DDP under a scripted run, and writes down what it saw before and in every step."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import esper
from esper.leyline import contracts as pb
from esper.session import Session
from esper.tolaria.state.digest import strong_digest
from tests.seed_kit import SETTINGS, batch, held_out, loss_of, new_host

WORLD_SIZE = 2


class Rank:
    """The host under the run, and beside it the same host alone, on the same batches."""

    def __init__(self, rank: int, num_orders: int) -> None:
        self.rank = rank
        self.host = new_host()
        self.model, self.alone = DistributedDataParallel(self.host), DistributedDataParallel(new_host())
        self.optimizer = torch.optim.SGD(self.host.parameters(), lr=2e-4, momentum=0.9)
        self.alone_optimizer = torch.optim.SGD(self.alone.parameters(), lr=2e-4, momentum=0.9)
        self.run: Session = esper.attach(
            self.model,
            optimizer=self.optimizer,
            sites=["body", "head"],
            holdout=(held_out().batches, loss_of),
            settings=replace(
                SETTINGS, min_gain=-10.0, scale_drift_max=10.0
            ),  # here seeds are to live, whatever they are worth
        )
        while self.run.exchange.boundary.queued < num_orders:
            self.run.exchange.pump(0.1)

    def step(self) -> dict[str, Any]:
        with self.run.step() as step:
            seen: dict[str, Any] = {
                "weights": strong_digest(self.run.status.weights()).hex(),
                "state": strong_digest(self.state()).hex(),
                "stages": {state.seed_id: state.stage for state in self.run.executor.states()},
                "parameters": len(list(self.host.parameters())),
            }
            step.loss(self.backward(self.model))
            self.backward(self.alone)
            seen["as_alone"] = all(
                torch.equal(mine.grad, other.grad) and torch.equal(mine, other)  # type: ignore[arg-type]
                for mine, other in zip(self.host.parameters(), self.alone.parameters(), strict=False)
            )
            seen["norm"] = float(torch.nn.utils.clip_grad_norm_(self.host.parameters(), 1e6))
            torch.nn.utils.clip_grad_norm_(self.alone.parameters(), 1e6)
            for optimizer in (self.optimizer, self.alone_optimizer):
                optimizer.step()
                optimizer.zero_grad()
        return seen

    def backward(self, model: nn.Module) -> torch.Tensor:
        inputs, targets = batch(WORLD_SIZE * self.run.step_number + self.rank)
        loss = loss_of(model(inputs), targets).mean()
        torch.autograd.backward(loss)
        return loss

    def state(self) -> list[tuple[str, torch.Tensor]]:
        """All that a rollback puts back, by name."""
        named = self.run.status.weights()
        optimizers = {"host": self.optimizer} | {i: o.torch for i, o in self.run.optimizers._seeds.items()}
        for optimizer_id, optimizer in optimizers.items():
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            for index, parameter in enumerate(parameters):
                moments = {name: v for name, v in optimizer.state[parameter].items() if isinstance(v, torch.Tensor)}
                named += [(f"{optimizer_id}.{index}.{name}", value) for name, value in moments.items()]
        return named + [(f"alpha.{seed_id}", seed.alpha) for seed_id, seed in self.run.executor.seeds.items()]


def main(rank: int, num_orders: int, num_steps: int, directory: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{directory}/group", rank=rank, world_size=WORLD_SIZE)
    trainer = Rank(rank, num_orders)
    seen = {number: trainer.step() for number in range(1, num_steps + 1)}
    report = trainer.run.close()
    stages = {seed.seed_id: pb.SeedLifecycleStage.Name(seed.stage) for seed in report.seeds}
    last = {"steps": report.steps, "digest": report.parameter_digest.hex(), "stages": stages}
    (directory / f"{rank}.json").write_text(json.dumps({"seen": seen, "last": last}))
    dist.destroy_process_group()


if __name__ == "__main__":
    rank, num_orders, num_steps, directory = os.environ["RANK_OF_TWO"].split("|")
    main(int(rank), int(num_orders), int(num_steps), Path(directory))
