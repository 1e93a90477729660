"""One rank of a model that fully_shard has split over all, under a scripted run; in a replay an element may flip."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import fully_shard

import esper
from esper.session.replay_link import REPLAY
from tests.seed_kit import SETTINGS, batch, held_out, loss_of, new_host

FLIPS = "flips"
NUM_ORDERS, NUM_STEPS = "NUM_ORDERS", 175


def batches(rank: int, num_ranks: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Of the one epoch."""
    for number in range(NUM_STEPS):
        yield batch(num_ranks * number + rank)


def flip(part: Tensor) -> None:
    """In its last element one bit."""
    with torch.no_grad():
        part.view(torch.int32).view(-1)[-1] ^= 1


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    host = new_host()
    fully_shard(host)
    optimizer = torch.optim.SGD(host.parameters(), lr=2e-4, momentum=0.9)
    run = esper.attach(
        host,
        optimizer=optimizer,
        sites=["body", "head"],
        holdout=(held_out().batches, loss_of),
        settings=replace(SETTINGS, min_gain=-10.0, scale_drift_max=10.0),  # seeds are to live, whatever they are worth
    )
    while REPLAY not in os.environ and run.exchange.boundary.queued < int(os.environ[NUM_ORDERS]):
        run.exchange.pump(0.1)
    for inputs, targets in run.batches(lambda _: batches(rank, num_ranks)):
        with run.step() as step:
            loss = loss_of(host(inputs), targets).mean()
            torch.autograd.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step.loss(loss)
    if FLIPS in sys.argv[1:] and rank == 1:
        flip(run.status.parts()["head.weight"])
    run.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
