"""A trainer whose batches are a function of the epoch, until told to end; killed, it goes on from a checkpoint."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import esper
from esper.runtime import logging
from esper.runtime.settings import Settings, load
from esper.tolaria.teachers.teachers import TeacherSource
from tests.seed_kit import SETTINGS, Host, held_out, loss_of
from tests.teacher_kit import Professor

BATCHES, MOST_EPOCHS = 20, 10_000
STOP = "ESPER_STOP_FILE"  # which a replay does not see
TEACHERS = "teachers"  # in its folder: where there are any, it distils from whichever it is told to


class Noisy(Host):
    """Draws from the global generator, which checkpoints and rollbacks put back."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(x, 0.01, self.training))


def batches(epoch: int, rank: int) -> Iterator[tuple[Tensor, Tensor]]:
    """A function of both alone."""
    for number in range(BATCHES):
        generator = torch.Generator().manual_seed(epoch * 10_000 + number * 10 + rank)
        x = torch.randn(64, 8, generator=generator)
        yield x, (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0).long()


def main(folder: Path, kind: str) -> None:
    logging.configure(load(Settings), role="trainer")
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    torch.manual_seed(3)
    host = Noisy()
    model = DistributedDataParallel(host) if dist.is_initialized() else host
    rates = {"adamw": torch.optim.AdamW(host.parameters(), lr=0.01), "sgd": torch.optim.SGD(host.parameters(), lr=0.05)}
    optimizer = rates[kind]
    run = esper.attach(
        model,
        optimizer=optimizer,
        sites=["body", "head"],
        holdout=(held_out().batches, loss_of),
        # A forward of a seed takes about as long as it may: the clock has a say at G2.
        settings=replace(SETTINGS, min_gain=-10.0, scale_drift_max=10.0, latency_budget_ms=0.03),
        teachers=TeacherSource(folder / TEACHERS, Professor) if (folder / TEACHERS).is_dir() else None,
        checkpoints=folder / "checkpoints",
        checkpoint_every=16,
        resume=True,
    )
    for _ in range(run.epoch, MOST_EPOCHS):
        for x, y in run.batches(lambda epoch: batches(epoch, rank)):
            with run.step() as step:
                outputs = model(x)
                loss = loss_of(outputs, y).mean()
                if run.teachers is not None:
                    loss = loss + run.teachers.distil(outputs, x)
                torch.autograd.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                step.loss(loss)
        run.epoch_end()
        if all_see(os.environ.get(STOP, "")):
            break
    run.close()
    if dist.is_initialized():
        dist.destroy_process_group()


def all_see(stop: str) -> bool:
    """Whether it is there, for all ranks alike."""
    seen = torch.tensor(float(bool(stop) and Path(stop).exists()))
    if dist.is_initialized():
        dist.all_reduce(seen, op=dist.ReduceOp.MAX)
    return bool(seen)


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    main(Path(told["folder"]), told["kind"])
