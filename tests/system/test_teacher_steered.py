"""Two ranks under a live coordinator: teachers come by command, before the same step on both, or on neither."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import esper
from esper.client import Controller
from esper.errors import CommandFailedError
from esper.leyline import contracts as pb
from esper.tolaria.digest import strong_digest
from esper.tolaria.teachers import TeacherSource
from tests.seed_kit import batch, loss_of, new_host
from tests.system.processes import Start
from tests.system.steered import Answers, Steered
from tests.teacher_kit import Professor, professor, questions, saved

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]
WORLD, MOST_STEPS = 2, 20_000


class Thorough(Professor):
    """Takes its time with a sample of four; what it answers is the same."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(20 if len(x) == 4 else 0):
            super().forward(x)
        return super().forward(x)


def saved_in(folders: list[Path], seed: int) -> str:
    """Each rank has a folder of its own, with the same teacher in it."""
    [digest] = {saved(professor(seed), folder)[1] for folder in folders}
    return digest


def train(rank: int, folder: str, environments: list[dict[str, str]]) -> None:
    """Distils from whatever teacher there is until the controller's story is over; rank 1 loads more slowly."""
    torch.set_num_threads(1)
    os.environ.update(environments[rank])
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


def test_teachers_come_before_the_same_step_on_both_ranks_or_on_neither(
    redis_url: str, run_id: str, tmp_path: Path, born: Start
) -> None:
    folders = [tmp_path / f"teachers-{rank}" for rank in range(WORLD)]
    for folder in folders:
        folder.mkdir()
    first, second = (saved_in(folders, seed) for seed in (0, 1))
    _, lone = saved(professor(2), folders[0])

    async def registered(controller: Controller) -> Answers:
        told = {"first": await (await controller.register_teacher(digest=first)).applied()}
        lonely = await controller.register_teacher(digest=lone)
        with pytest.raises(CommandFailedError, match="teacher_refused"):
            await lonely.applied()
        told["second"] = await (await controller.register_teacher(digest=second)).applied()
        told["lone"] = lonely.outcomes
        return told

    async def story(controller: Controller) -> Answers:
        try:
            return await registered(controller)
        finally:
            (tmp_path / "over").touch()

    steered = Steered(redis_url, run_id, tmp_path, born)
    environments = [{**steered.worker, "ESPER_NAME": f"worker-{rank}"} for rank in range(WORLD)]
    with steered.controlled(story):
        both = spawn(train, (str(tmp_path), environments), nprocs=WORLD, join=False)  # type: ignore[no-untyped-call]
        try:
            while not both.join():
                pass
        finally:
            for process in both.processes:
                process.kill()  # where the test's time is over they would train on
    told = steered.told

    said = [json.loads((tmp_path / f"said-{rank}.json").read_text()) for rank in range(WORLD)]
    steps = {name: {receipt.step for receipt in told[name]} for name in told}
    assert [len(found) for found in steps.values()] == [1, 1, 1] and len(told["first"]) == WORLD
    [taken_first], [taken_second] = steps["first"], steps["second"]
    assert said[0] == said[1]
    assert said[0]["teachers"] == [[1, ""], [taken_first, first], [taken_second, second]]
    assert {receipt.status for receipt in told["lone"]} == {pb.ReceiptStatus.RECEIPT_FAILED}
