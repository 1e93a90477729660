"""A rank with checkpoints under a scripted run: trains to a step, tells what it saw before each, waits to be killed."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import torch

import esper
from esper.leyline import contracts as pb
from esper.tolaria.state.digest import strong_digest
from tests.seed_kit import SETTINGS, held_out, loss_of, new_host, optimizer_of
from tests.session_kit import backward

EVERY = 8


def main(folder: Path, num_orders: int, num_steps: int, resume: bool) -> None:
    """Digests of all weights by step, as a line of JSON, once `num_steps` have begun."""
    torch.set_num_threads(1)
    host = new_host()
    run = esper.attach(
        host,
        optimizer=optimizer_of("adamw", list(host.parameters())),
        sites=["body", "head"],
        holdout=(held_out().batches, loss_of),
        settings=replace(SETTINGS, min_gain=-10.0, scale_drift_max=10.0),
        checkpoints=folder / "kept",
        checkpoint_every=EVERY,
        resume=resume,
    )
    while run.exchange.boundary.queued < num_orders:
        run.exchange.pump(0.1)
    seen = {}
    while run.step_number <= num_steps:
        with run.step() as step:
            stages = {each.seed_id: pb.SeedLifecycleStage.Name(each.stage) for each in run.executor.states()}
            seen[run.step_number] = [strong_digest(run.status.weights()).hex(), stages]
            step.loss(backward(host, run.step_number))
            run.optimizer.step()
            run.optimizer.zero_grad()
    print(json.dumps(seen), flush=True)
    signal.pause()


if __name__ == "__main__":
    folder, num_orders, num_steps, how = os.environ["RESUMED"].split("|")
    main(Path(folder), int(num_orders), int(num_steps), how == "resume")
