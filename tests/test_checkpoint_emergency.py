"""What can't be had again is saved at once; and what a failing disk does stops no training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from esper.errors import CheckpointError
from esper.leyline import contracts as pb
from esper.tolaria.checkpoints.tree import unpack
from tests.checkpoint_kit import Training


def test_seeds_alphas_and_their_optimizers_are_saved(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.raise_seed(fossilize=False)
    seed = run.executor.seeds["s0"]

    path = run.checkpoints.emergency("three isolation violations")

    manifest, blob = run.checkpoints.store.read(path)
    state = unpack(manifest.state, blob)
    kept = state["seeds"]["seeds"]["s0"]
    assert manifest.reason == "three isolation violations"
    assert "model" not in state
    assert torch.equal(kept["alpha"], seed.alpha)
    assert all(torch.equal(kept["tensors"][name], each) for name, each in seed.trainable())
    assert len(state["optimizers"]["seeds"]["s0"]["moments"]) == len(seed.trainable())


def test_an_emergency_command_saves_them(tmp_path: Path) -> None:
    run = Training(tmp_path)
    stop = pb.EmergencyCommand(level=pb.EmergencyLevel.EMERGENCY_HALT, reason="smoke")

    run.order(pb.AdaptationCommand(version=1, command_id="stop", emergency_command=stop))

    [path] = run.checkpoints.store.paths("emergency")
    assert run.checkpoints.store.manifest(path).reason == "smoke"


def test_it_is_none_to_go_back_to(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.train(2)
    run.checkpoints.emergency("drill")

    assert run.checkpoints.refs() == []
    assert run.checkpoints.resume() is None


def test_only_the_newest_few_are_kept(tmp_path: Path) -> None:
    run = Training(tmp_path)

    made = [run.checkpoints.emergency("drill") for _ in range(6)]

    assert run.checkpoints.store.paths("emergency") == made[:2:-1]


def test_a_disk_that_fails_is_told_and_training_goes_on(tmp_path: Path) -> None:
    run = Training(tmp_path / "file", every=1)
    (tmp_path / "file").write_bytes(b"no folder")

    run.train(3)

    assert run.checkpoints.in_emergency("drill") is None
    assert run.checkpoints.num_failed == 3
    with pytest.raises(CheckpointError, match="can't be written: File exists"):
        run.checkpoints.save(run.step)
