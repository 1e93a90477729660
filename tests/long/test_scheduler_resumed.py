"""A scheduler that a script gives as its `loader` goes on, in a process that resumes, where it was left."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR

import esper
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from tests.seed_kit import new_host
from tests.session_kit import train


def rates(folder: Path, *, resume: bool) -> list[float]:
    """At which three epochs more were trained; then a checkpoint is made."""
    host = new_host()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1)
    scheduler, met = CosineAnnealingLR(optimizer, T_max=10), []
    run = esper.attach(
        host,
        optimizer=optimizer,
        sites=["body"],
        scheduler=scheduler,
        loader=scheduler,
        required=False,
        environment={"ESPER_RUN": "", "ESPER_KEYRING": str(folder / "worker.json")},
        checkpoints=folder / "kept",
        resume=resume,
    )
    for _ in range(3):
        train(run, host, 1)
        met.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
        run.epoch_end()
    assert run.checkpoints is not None
    run.checkpoints.save(run.step_number, run.epoch)
    run.close()
    return met


def test_a_scheduler_that_is_given_as_loader_goes_on_where_it_was_left(tmp_path: Path) -> None:
    MasterKeyring.new(time.time_ns()).derive("unsteered", [Role.WORKER]).save(tmp_path / "worker.json")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    alone, expected = CosineAnnealingLR(optimizer, T_max=10), []
    for _ in range(6):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        alone.step()

    met = [*rates(tmp_path, resume=False), *rates(tmp_path, resume=True)]

    assert met == expected
