"""A data-parallel training of three ranks, in the memory of one of which a signal flips one bit of one element."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import esper
from esper.examples import digits
from esper.examples.train_digits import all_agree_to_stop

FLIPPED = "has flipped a bit"
GO = "go"
"""A file: from now on each step is an epoch. Before it, all are of the first one."""


def flip(parameter: torch.Tensor) -> None:
    """In its fraction the highest bit: the lowest may be lost again in a rounding."""
    with torch.no_grad():
        parameter.view(-1).view(torch.int32)[7] ^= 1 << 22
    print(f"rank {os.environ['RANK']} {FLIPPED}", flush=True)


def main(stop_file: Path) -> None:
    """Train until this file is there."""
    directory = stop_file.parent
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    data, model = digits.Digits.load(torch.device("cpu")), DistributedDataParallel(digits.host())
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    signal.signal(signal.SIGUSR1, lambda *_: flip(learnt[0]))
    (directory / f"rank-{rank}.pid").write_text(str(os.getpid()))
    optimizer, criterion = torch.optim.SGD(learnt, lr=0.05, momentum=0.9), nn.CrossEntropyLoss()
    run = esper.attach(
        model, optimizer=optimizer, sites=["head"], checkpoints=directory / "kept", checkpoint_every=50, resume=True
    )
    every, device = list(digits.batches(data.train, 0, rank, world_size)), torch.device("cpu")
    while not all_agree_to_stop(stop_file, device):
        inputs, targets = every[run.step_number % len(every)]
        with run.step() as step:
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step.loss(loss)
        if all_agree_to_stop(directory / GO, device):
            run.epoch_end()
    report = run.close()
    print(f"rank {rank} ended at step {report.steps} with {report.parameter_digest.hex()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(os.environ["ESPER_STOP_FILE"]))
