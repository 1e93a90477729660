"""A DataLoader's forked worker, and the link to the runtime beside the trainer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import esper
from tests.bus_kit import sockets
from tests.seed_kit import new_host, optimizer_of
from tests.session_kit import train
from tests.system.scripted import Script


def test_a_forked_worker_neither_holds_the_link_nor_the_runtime(redis_url: str, run_id: str, tmp_path: Path) -> None:
    host = new_host()
    optimizer = optimizer_of("sgd", list(host.parameters()))
    before = sockets()
    environment = Script(redis_url, run_id, tmp_path).environment()
    run = esper.attach(host, optimizer=optimizer, sites=["body"], environment=environment)
    lanes = sockets() - before
    runtime = run.exchange.link._process  # type: ignore[union-attr]
    assert isinstance(runtime, subprocess.Popen)

    loader = DataLoader(TensorDataset(torch.ones(64, 8)), batch_size=8, num_workers=1, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    (worker,) = batches._workers  # type: ignore[attr-defined]
    held = sockets(worker.pid)
    train(run, host, 3)
    report = run.close()

    assert len(lanes) == 2
    assert held & lanes == set()
    assert worker.is_alive()  # and so, had it held the lanes, the runtime would not have heard of the end
    assert runtime.returncode == 0
    assert report.steps == 3
