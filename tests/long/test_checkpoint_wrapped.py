"""A checkpoint holds the model under its own names, whatever distributes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import esper
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.session import Session
from tests.seed_kit import Host, new_host, optimizer_of
from tests.session_kit import train

Wrap = Callable[[nn.Module], nn.Module]


def compiled(model: nn.Module) -> nn.Module:
    wrapper = torch.compile(DistributedDataParallel(model), backend="eager")
    assert isinstance(wrapper, nn.Module)
    return wrapper


@pytest.fixture
def keyring(tmp_path: Path, process_group: None) -> str:
    """Of a run in a process group of one rank."""
    path = tmp_path / "worker.json"
    MasterKeyring.new(time.time_ns()).derive("unsteered", [Role.WORKER]).save(path)
    return str(path)


def attached(keyring: str, wrap: Wrap, *, resume: bool = False) -> tuple[Host, nn.Module, Session]:
    host = new_host()
    model = wrap(host)
    run = esper.attach(
        model,
        optimizer=optimizer_of("adamw", list(host.parameters())),
        sites=("body",),
        required=False,
        environment={"ESPER_RUN": "", "ESPER_KEYRING": keyring},
        checkpoints=Path(keyring).parent / "kept",
        resume=resume,
    )
    return host, model, run


@pytest.mark.parametrize("wrap", [lambda model: model, DistributedDataParallel, compiled], ids=["bare", "ddp", "both"])
def test_one_of_a_compiled_ddp_is_resumed_however_the_model_is_wrapped(keyring: str, wrap: Wrap) -> None:
    host, model, run = attached(keyring, compiled)
    train(run, model, 3)
    assert run.checkpoints is not None
    run.checkpoints.save(run.step_number)
    run.close()

    again, _, resumed = attached(keyring, wrap, resume=True)

    assert resumed.step_number == run.step_number
    assert all(map(torch.equal, again.parameters(), host.parameters()))
    resumed.close()
