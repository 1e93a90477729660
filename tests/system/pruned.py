"""One of two ranks under DistributedDataParallel that measure, prune and undo."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.messages import bits_of
from esper.kasmina.pruning.pruner import Pruning
from esper.leyline import contracts as pb
from esper.tolaria.reduce import SeedReducer

WORLD, NUM_STEPS = 2, 12
PATIENCE = timedelta(seconds=150)
"""For the other rank: a wait in gloo hears no alarm, and lasts 30 minutes in a group that is given no time."""
KEPT = torch.tensor([1, 0, 1, 1, 0, 1], dtype=torch.bool)


def model() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(100 * step + rank))


def train(rank: int, folder: str) -> None:
    """Prunes before step 5; at step 8 rank 1 alone notes that accuracy fell by six points: three on average."""
    torch.set_num_threads(1)
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=WORLD, timeout=PATIENCE)
    host = DistributedDataParallel(model())
    settings = KasminaCheckpointPruningConfig(check_every=2)
    pruning = Pruning(host, settings, reduce=SeedReducer(dist.new_group(timeout=PATIENCE)).mean)
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    pruning.note_accuracy(0.9)
    said: dict[str, torch.Tensor] = {}
    for step in range(1, NUM_STEPS):
        if step == 5:
            [told] = pruning.export("r", "", step)
            said["taylor"] = torch.tensor(told.importance[0].taylor)
            channels = pb.PruningMaskType.PRUNING_MASK_CHANNEL
            mask = pb.PruningMask(parameter="module.0.weight", mask_type=channels, kept=bits_of(KEPT), num_channels=6)
            response = pb.StructuralPruningResponse(request_id="r", validation_passed=True, pruning_masks=[mask])
            assert not pruning.apply(response, step).reason
        if step == 8 and rank == 1:
            pruning.note_accuracy(0.84)
        pruning.begin_step(step)
        optimizer.zero_grad()
        torch.autograd.backward(host(batch(rank, step)).square().mean())
        pruning.before_optimizer_step(optimizer)
        optimizer.step()
        pruning.after_optimizer_step()
        said[f"step {step}"] = host.module[0].weight.detach().clone()
    torch.save(said, f"{folder}/{rank}.pt")
    # DDP's reducer, were it the group's last holder, would join gloo's thread with the GIL held, for which that thread
    # may be waiting: github.com/pytorch/pytorch/issues/56297
    del host, pruning
    dist.destroy_process_group()


if __name__ == "__main__":
    train(1, os.environ["FOLDER"])
