"""A disk that is full when a breaker opens: a line and an event say so, and training goes on."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
import torch

import esper
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.session import Session
from tests.seed_kit import Host, Op, new_host, optimizer_of
from tests.session_kit import on_seed, order, train


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow beyond 100 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def attached(folder: Path) -> tuple[Host, Session]:
    """In training with a seed, and with checkpoints."""
    keyring, host = folder / "worker.json", new_host()
    MasterKeyring.new(time.time_ns()).derive("unsteered", [Role.WORKER]).save(keyring)
    run = esper.attach(
        host,
        optimizer=optimizer_of("sgd", list(host.parameters())),
        sites=("body",),
        required=False,
        environment={"ESPER_RUN": "", "ESPER_KEYRING": str(keyring)},
        checkpoints=folder / "kept",
    )
    train(run, host, 1)
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"))
    train(run, host, 1)
    return host, run


def test_a_disk_that_is_full_in_an_emergency_is_told_once_and_training_goes_on(tmp_path: Path) -> None:
    host, run = attached(tmp_path)
    run.exchange.rows.table()
    before = host.body.weight.detach().clone()
    for _ in range(3):
        run.executor.seeds["s0"].breaker.fail()

    with structlog.testing.capture_logs() as lines, full_disk():
        train(run, host, 3)

    table, failed = run.exchange.rows.table(), [line for line in lines if line["event"] == "checkpoint.failed"]
    assert table is not None
    assert [(each.description, each.level) for each in table.events] == [
        ("breaker.opened", pb.TelemetryLevel.TELEMETRY_CRITICAL),
        ("checkpoint.failed", pb.TelemetryLevel.TELEMETRY_ERROR),
    ]
    assert len(failed) == 1 and failed[0]["why"].endswith("it can't be written: File too large")
    assert table.events[1].attributes["why"] == failed[0]["why"]
    assert run.step_number == 6 and not torch.equal(before, host.body.weight)
