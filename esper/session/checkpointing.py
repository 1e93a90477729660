"""Joins a session with its checkpoints: where they lie, who signs them, and whether to resume from one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from esper.errors import SettingError
from esper.kasmina.pruning.pruner import Pruning
from esper.runtime.history.checkpoint_keys import key_file_for
from esper.session.options import SessionOptions, WorkerIdentity
from esper.tolaria.checkpoints.checkpoints import Checkpoints
from esper.tolaria.checkpoints.keyed import KeyringSigner
from esper.tolaria.checkpoints.rank import RankState
from esper.tolaria.checkpoints.store import Store
from esper.tolaria.reduce import SeedReducer

TO_GO_ON = "its run file needs `keys`: without them each start is another run"


@dataclass(frozen=True, slots=True)
class Part:
    """Something that keeps state under other names."""

    state_dict: Callable[[], Any]
    load_state_dict: Callable[[Any], Any]

    @classmethod
    def of(cls, pruning: Pruning) -> Part:
        return cls(pruning.state, pruning.load_state)


def open_checkpoints(
    chosen: SessionOptions, identity: WorkerIdentity, run_id: str, state: RankState, reducer: SeedReducer
) -> Checkpoints | None:
    """Those of this rank, in a folder of its own below the run's; None where no place for them was given.

    Raises SettingError where no key of the run signs them, or `resume` is asked for in a folder of other runs.
    """
    if chosen.checkpoints is None:
        if chosen.resume or chosen.checkpoint_every:
            raise SettingError("checkpoints", chosen.checkpoints, "a folder, as resume or checkpoint_every is given")
        return None
    folder = Path(chosen.checkpoints)
    environment: Mapping[str, str] = {**os.environ, **chosen.environment}
    keys = key_file_for(run_id, environment)
    signer = KeyringSigner(keys.keyring, keys.look)
    if signer.run_id != run_id:
        raise SettingError("keyring", f"for run {signer.run_id}", f"one for run {run_id}")
    if chosen.resume and not (folder / run_id).is_dir() and (others := sorted(_folders(folder))):
        expected = f"a run with checkpoints in {folder}: {', '.join(others)}"
        raise SettingError("resume", run_id, f"{expected} ({TO_GO_ON}), or another folder")
    store = Store(folder / run_id / folder_of(identity), signer, chosen.checkpoints_kept)

    def mean(value: float) -> float:
        return float(reducer.mean(torch.tensor(value, dtype=torch.float64, device="cpu")))

    return Checkpoints(state, store, signer, chosen.checkpoint_every, identity.rank, identity.world_size, mean)


def folder_of(identity: WorkerIdentity) -> str:
    """Of a rank by its number; of one of several workers in no process group, which are all of rank 0, by its name."""
    return f"rank-{identity.rank}" if identity.world_size > 1 or identity.name == "worker-0" else identity.name


def _folders(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir() if each.is_dir()] if folder.is_dir() else []
