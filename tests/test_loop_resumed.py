"""A framework's loop that counts its steps from 0 beside a run that has resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs

from esper.session.loop import SteeredLoop
from tests.checkpoint_kit import keyring
from tests.seed_kit import new_host
from tests.session_kit import NO_RUN, UNSTEERED, train


@pytest.mark.parametrize(("num_steps", "is_told"), [(0, True), (3, False), (4, False)])
def test_the_log_says_that_a_loop_counts_anew_what_the_run_has_behind_it(
    tmp_path: Path, num_steps: int, is_told: bool
) -> None:
    keyring(UNSTEERED).save(tmp_path / "keyring.json")
    loop, _ = opened(tmp_path, 0)
    assert loop.run is not None
    train(loop.run, loop.run.status.model, 5)
    loop.run.abandon()

    _, logs = opened(tmp_path, num_steps)

    assert logs == [(4, num_steps)] * is_told


def opened(folder: Path, num_steps: int) -> tuple[SteeredLoop, list[tuple[int, int]]]:
    """And what its log said of steps: the run's and its own."""
    host = new_host()
    environment = NO_RUN | {"ESPER_KEYRING": str(folder / "keyring.json")}
    kept = {"checkpoints": folder / "kept", "checkpoint_every": 2, "resume": True}
    loop = SteeredLoop(["body"], {"required": False, "environment": environment, **kept})
    with capture_logs() as logs:
        loop.open(host, torch.optim.SGD(host.parameters(), lr=0.1), num_steps)
    told = [each for each in logs if each["event"] == "trainer.counts_anew"]
    return loop, [(each["run_steps"], each["trainer_steps"]) for each in told]
