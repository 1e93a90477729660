"""A default device of the user's that is not the model's changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests import checkpoint_kit
from tests.checkpoint_kit import Training
from tests.seed_kit import batch, equal

BATCHES = {step: batch(step) for step in range(1, 80)}  # the user's: made where the model is


def lived(folder: Path, device: str | None) -> Training:
    """Through all stages and a rollback, with a second seed, and on in a new process.

    What lands on the meta device by mistake holds no data, and raises as soon as it is read.
    """
    first, again = Training(folder), Training(folder)
    torch.manual_seed(1)
    torch.set_default_device(device)
    try:
        first.live_on()
        first.checkpoints.save(first.step)
        place = again.checkpoints.resume()
        assert place is not None
        again.step = place.step
        again.train(3)
    finally:
        torch.set_default_device(None)
    return again


def test_seeds_grow_are_rolled_back_and_resumed_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_kit, "batch", BATCHES.__getitem__)

    usual, odd = lived(tmp_path / "usual", None), lived(tmp_path / "odd", "meta")

    assert odd.stages() == usual.stages() == {"s0": "FOSSILIZED", "s1": "TRAINING"}
    assert equal(odd.everything(), usual.everything())
