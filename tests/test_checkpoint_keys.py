"""A trainer signs its checkpoints with the keys that its file holds by then, so that they can be resumed from."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import nn

import esper
from esper.leyline.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.session import Session
from tests.seed_kit import new_host
from tests.session_kit import NO_RUN, train

RUN = "unsteered"


def joined(folder: Path, keyring: Path, host: nn.Module, *, resume: bool = False) -> Session:
    return esper.attach(
        host,
        optimizer=torch.optim.SGD(host.parameters(), lr=0.01),
        sites=["body"],
        required=False,
        environment=NO_RUN | {"ESPER_KEYRING": str(keyring)},
        checkpoints=folder,
        checkpoint_every=2,
        resume=resume,
    )


def test_a_checkpoint_made_after_its_first_key_was_retired_is_resumed_from(tmp_path: Path) -> None:
    keyring, master = tmp_path / "worker.json", MasterKeyring.new(time.time_ns())
    master.derive(RUN, [Role.WORKER]).save(keyring)
    host = new_host()
    run = joined(tmp_path / "checkpoints", keyring, host)
    train(run, host, 3)

    master = master.rotate(time.time_ns(), overlap_s=0)
    master.derive(RUN, [Role.WORKER]).save(keyring)
    train(run, host, 4)

    assert joined(tmp_path / "checkpoints", keyring, new_host(), resume=True).step_number == 7
