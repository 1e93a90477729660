"""One rank that distils from whatever teacher there is, and writes down which it had before each step."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import esper
from esper.tolaria.state.digest import strong_digest
from esper.tolaria.teachers.teachers import TeacherSource
from tests.seed_kit import batch, loss_of, new_host
from tests.teacher_kit import Professor, questions

WORLD, MOST_STEPS = 2, 20_000


class Thorough(Professor):
    """Takes its time with a sample of four; what it answers is the same."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(20 if len(x) == 4 else 0):
            super().forward(x)
        return super().forward(x)


def main(folder: str, rank: int) -> None:
    """Distils from whatever teacher there is until the controller's story is over; rank 1 loads more slowly."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD)
    host = new_host()
    model = DistributedDataParallel(host)
    optimizer = torch.optim.SGD(host.parameters(), lr=0.01)
    source = TeacherSource(Path(folder, f"teachers-{rank}"), (Professor, Thorough)[rank], sample=questions(4))
    said: dict[str, Any] = {"teachers": []}
    with esper.attach(model, optimizer=optimizer, sites=["body"], teachers=source) as run:
        assert run.teachers is not None
        over = torch.zeros(())
        while not over and run.step_number < MOST_STEPS:
            with run.step() as step:
                digest = run.teachers.current.digest if run.teachers.current is not None else ""
                if not said["teachers"] or said["teachers"][-1][1] != digest:
                    said["teachers"].append([run.step_number, digest])
                inputs, targets = batch(WORLD * run.step_number + rank)
                outputs = model(inputs)
                loss = loss_of(outputs, targets).mean() + run.teachers.distil(outputs, inputs)
                torch.autograd.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                step.loss(loss)
            over.fill_(float(Path(folder, "over").exists()))
            dist.broadcast(over, 0)
        said["weights"] = strong_digest(list(host.named_parameters())).hex()
    Path(folder, f"said-{rank}.json").write_text(json.dumps(said))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(os.environ["FOLDER"], int(os.environ["RANK_OF_TWO"]))
