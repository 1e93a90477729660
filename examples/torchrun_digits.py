"""Data-parallel training that is steered and outlives a killed rank."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import esper
from esper.errors import SettingError, TrainingError
from esper.examples import digits
from esper.examples.train_digits import all_agree_to_stop, join_peers
from esper.session import Session
from esper.tolaria.state.digest import strong_digest


def train(max_epochs: int, stop_file: Path | None, checkpoints: Path, every: int, *, shards: bool) -> None:
    """Every rank runs this; after a restart it goes on from the newest checkpoint that all ranks have."""
    torch.set_num_threads(1)
    device = join_peers()
    if not dist.is_initialized():
        raise SettingError("RANK", "", "a start by torchrun")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    data, host = digits.Digits.load(device), digits.host().to(device)
    if shards:
        fully_shard(host)  # before the optimizer is made, as always, and before attach()
    learnt = [parameter for parameter in host.parameters() if parameter.requires_grad]
    optimizer, criterion = torch.optim.SGD(learnt, lr=0.05, momentum=0.9), nn.CrossEntropyLoss()
    run = esper.attach(
        host,
        optimizer=optimizer,
        sites=["hidden", "head"],
        holdout=([data.holdout], nn.CrossEntropyLoss(reduction="none")),
        data="digits",
        checkpoints=checkpoints,
        checkpoint_every=every,
        resume=True,
    )
    model = host if shards else DistributedDataParallel(host)  # before attach(), as in train_digits.py, does as well
    for _ in range(run.epoch, max_epochs):
        for inputs, targets in run.batches(lambda epoch: digits.batches(data.train, epoch, rank, world_size)):
            with run.step() as step:
                loss = criterion(model(inputs), targets)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                step.loss(loss, examples=len(inputs))
        require_equal(run)
        run.epoch_end()
        if all_agree_to_stop(stop_file, device):
            break
    report = run.close()
    print(f"rank {rank} ended at step {report.steps} with {report.parameter_digest.hex()}", flush=True)
    dist.destroy_process_group()


def require_equal(run: Session) -> None:
    """Raise TrainingError unless the parameters of all ranks are the same, bit for bit."""
    mine = torch.frombuffer(bytearray(strong_digest(run.status.weights())), dtype=torch.uint8)
    all_said = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_said, mine)
    if not all(torch.equal(each, mine) for each in all_said):
        said = ", ".join(bytes(each.tolist()).hex() for each in all_said)
        raise TrainingError(f"the ranks have parted at step {run.step_number}: {said}")


def main() -> None:
    """Read the environment.

        export ESPER_RUN=digits TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
        torchrun --nproc-per-node 2 --max-restarts 3 examples/torchrun_digits.py

    With --shard behind it the ranks hold the model together, by fully_shard, instead of a copy each below DDP.
    The run is ESPER_RUN, or the one called as torchrun is (--rdzv-id). Without the second variable (torch 2.13) ranks
    that are started again meet in the store of those before them, may read where these listened, and wait for them.
    """
    stop_file = os.environ.get("ESPER_STOP_FILE")
    train(
        int(os.environ.get("ESPER_MAX_EPOCHS", "100000")),
        Path(stop_file) if stop_file else None,
        Path(os.environ.get("ESPER_CHECKPOINTS", "checkpoints")),
        int(os.environ.get("ESPER_CHECKPOINT_EVERY", "100")),
        shards="--shard" in sys.argv[1:],
    )


if __name__ == "__main__":
    main()
