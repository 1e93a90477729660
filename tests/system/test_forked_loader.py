"""A DataLoader's forked worker, and the link to the runtime beside the trainer."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import esper
from tests.seed_kit import new_host, optimizer_of
from tests.session_kit import train
from tests.system.scripted import Script


def sockets(pid: int | str) -> set[str]:
    """The sockets that a process holds open, by inode."""
    links = []
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # the listing's own
            links.append(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    return {link for link in links if link.startswith("socket:")}


def test_a_forked_worker_neither_holds_the_link_nor_the_runtime(redis_url: str, run_id: str, tmp_path: Path) -> None:
    host = new_host()
    optimizer = optimizer_of("sgd", list(host.parameters()))
    before = sockets("self")
    environment = Script(redis_url, run_id, tmp_path).environment()
    run = esper.attach(host, optimizer=optimizer, sites=["body"], environment=environment)
    lanes = sockets("self") - before
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
