"""One rank with checkpoints under a live coordinator: writes down what it held before each step, until told to stop."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import esper
from esper.tolaria.state.digest import strong_digest
from tests.seed_kit import SETTINGS, batch, loss_of, new_host

EVERY = 8


def is_over(stop: Path) -> bool:
    """Rank 0 looks, so that all ranks end after the same step."""
    flag = torch.tensor(float(stop.exists()))
    dist.broadcast(flag, 0)
    return bool(flag)


def main(folder: Path, rank: int, world_size: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=world_size)
    host = new_host()
    model = DistributedDataParallel(host)
    optimizer = torch.optim.AdamW(host.parameters(), lr=1e-3)
    kept: dict[str, Any] = {"checkpoints": folder / "kept", "checkpoint_every": EVERY, "checkpoints_kept": 1_000}
    run = esper.attach(model, optimizer=optimizer, sites=["body", "head"], settings=SETTINGS, **kept)
    seen = {}
    while not is_over(folder / "stop"):
        with run.step() as step:
            stages = {each.seed_id: each.stage for each in run.executor.states()}
            seen[run.step_number] = [strong_digest(run.status.weights()).hex(), stages]
            inputs, targets = batch(world_size * run.step_number + rank)
            loss = loss_of(model(inputs), targets).mean()
            torch.autograd.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step.loss(loss)
    memory = [ref.step for ref in run.status.states._snapshots.refs()]
    run.close()
    (folder / f"{rank}.json").write_text(json.dumps({"seen": seen, "memory": memory}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(os.environ["DEEP_FOLDER"]), int(os.environ["DEEP_RANK"]), int(os.environ["DEEP_WORLD"]))
