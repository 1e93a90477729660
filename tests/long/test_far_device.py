"""Training steered on a device that is not the CPU comes to the same, and waits for the device where it has to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from esper.bench.device import DEVICE
from tests.far_trials import TRIALS, nowhere

CPU = torch.device("cpu")
NUM_STEPS, READ_EVERY = 20, 8  # of the trial of a life; KasminaConfig.read_every
HALF = 1e-2  # in half precision the CPU's autocast narrows other operations than a GPU's


def far(name: str, folder: Path) -> dict[str, Any]:
    """In a process of its own: a device once registered stays."""
    file = folder / "found.pt"
    subprocess.run([sys.executable, "-m", "tests.far_trials", name, str(file)], check=True, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = torch.load(file, weights_only=False)
    return found


@pytest.mark.parametrize("name", TRIALS)
def test_a_run_on_another_device_comes_to_what_it_does_on_the_cpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.checkpoint_kit.batch", None)  # which a trial sets, and this puts back
    monkeypatch.setattr("tests.seed_kit.batch", None)
    monkeypatch.setenv(DEVICE, "")

    there, here = far(name, tmp_path), TRIALS[name](CPU, nowhere)

    assert there["stages"] == here["stages"]
    assert there["strays"] == []
    torch.testing.assert_close(there["tensors"], here["tensors"], rtol=1e-5, atol=HALF if name == "scaled" else 1e-7)
    if name == "life":
        waits = {place: num for place, num in there["waits"].items() if place}
        assert waits.pop("tolaria/optimizers/joint.py:norms") == NUM_STEPS
        assert sum(waits.values()) <= NUM_STEPS // READ_EVERY + 1
