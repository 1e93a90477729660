"""attach() makes checkpoints, and a second process's attach() goes on from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import esper
from esper.errors import SettingError
from esper.session import Session
from tests.checkpoint_kit import RUN, keyring
from tests.seed_kit import Host, new_host, optimizer_of
from tests.session_kit import NOWHERE, train


def attached(folder: Path, host: Host, **options: Any) -> Session:
    keyring().save(folder / "keyring.json")
    return esper.attach(
        host,
        optimizer=optimizer_of("adamw", list(host.parameters())),
        sites=("body",),
        run=RUN,
        required=False,
        checkpoints=folder / "kept",
        environment={**NOWHERE, "ESPER_KEYRING": str(folder / "keyring.json")},
        **options,
    )


class Loader:
    """Counts what it has handed out."""

    def __init__(self) -> None:
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def test_a_second_session_trains_on_bit_for_bit(tmp_path: Path) -> None:
    first, again, loader = new_host(), new_host(), Loader()
    run = attached(tmp_path, first, checkpoint_every=4, loader=loader)
    for position in range(1, 12):
        loader.position = position
        train(run, first, 1)
    run.close()

    resumed = attached(tmp_path, again, resume=True, loader=loader)
    assert (resumed.step_number, loader.position) == (9, 9)
    train(resumed, again, 3)
    resumed.close()

    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_what_can_not_be_meant_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept" / "other-00000000").mkdir(parents=True)

    others = "a run with checkpoints in .*: other-00000000 .* `keys`: .*, or another folder"
    with pytest.raises(SettingError, match=f"resume is '{RUN}'; expected {others}$"):
        attached(tmp_path, new_host(), resume=True)
