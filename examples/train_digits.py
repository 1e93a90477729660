"""A training script that is steered: what a user writes, with esper.attach in it."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import esper
from esper.errors import SettingError, TrainingError
from esper.examples import digits
from esper.kasmina.config import KasminaConfig


def train(max_epochs: int, stop_file: Path | None) -> bool:
    """Train until `stop_file` appears or `max_epochs` have passed, then report. Whether they have, on every rank."""
    torch.set_num_threads(1)
    device = join_peers()
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    data = digits.Digits.load(device)
    host = digits.host().to(device)
    model = DistributedDataParallel(host) if world_size > 1 else host
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(learnt, lr=0.05, momentum=0.9)
    run = esper.attach(
        model,
        optimizer=optimizer,
        sites=["hidden", "head"],
        holdout=([data.holdout], nn.CrossEntropyLoss(reduction="none")),
        data="digits",
        settings=KasminaConfig(embargo_epochs=5),
    )
    run.note(train=len(data.train[1]), test=len(data.test[1]))
    criterion = nn.CrossEntropyLoss()
    for _ in range(run.epoch, max_epochs):
        for inputs, targets in run.batches(lambda epoch: digits.batches(data.train, epoch, rank, world_size)):
            with run.step() as step:
                loss = criterion(model(inputs), targets)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                step.loss(loss, examples=len(inputs))
        run.note(accuracy=digits.accuracy(host, data.test))
        run.epoch_end()
        if all_agree_to_stop(stop_file, device):
            break
    done = run.epoch >= max_epochs
    run.close()
    if dist.is_initialized():
        dist.destroy_process_group()
    return done


def join_peers() -> torch.device:
    """Join the process group that torchrun's environment describes, if it does; return this rank's device."""
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else None
    if "RANK" in os.environ:
        try:
            dist.init_process_group("nccl" if device else "gloo")
        except ValueError as error:
            raise SettingError(
                "RANK", os.environ["RANK"], f"the rest of what torchrun sets beside it ({error})"
            ) from error
        except dist.DistError as error:
            raise TrainingError(f"the ranks' group cannot be joined: {str(error).splitlines()[0]}") from error
    return device or torch.device("cpu")


def all_agree_to_stop(stop_file: Path | None, device: torch.device) -> bool:
    """True on every rank where any rank sees the file."""
    seen = torch.tensor(float(stop_file is not None and stop_file.exists()), device=device)
    if dist.is_initialized():
        dist.all_reduce(seen, op=dist.ReduceOp.MAX)
    return bool(seen.item())


def main() -> None:
    """Read the environment, as torchrun and `esper demo` set it."""
    stop_file = os.environ.get("ESPER_STOP_FILE")
    train(int(os.environ.get("ESPER_MAX_EPOCHS", "100000")), Path(stop_file) if stop_file else None)


if __name__ == "__main__":
    main()
