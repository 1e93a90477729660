"""Schedulers and scalers that attach() was given go on, in a process that resumes, where they were left."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
import torch
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

import esper
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.session import Session
from tests.seed_kit import new_host
from tests.session_kit import train

NUM_EPOCHS = 4
NO_GAIN = 1.0


class Halving:
    """A rate as a callable object, whose attributes are state."""

    def __init__(self) -> None:
        self.halves = 0.5

    def __call__(self, epoch: int) -> float:
        return float(self.halves**epoch)


class Own(LRScheduler):
    """A script's own, with what is no data among its state."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.rate = Halving()
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        return [base * self.rate(self.last_epoch) for base in self.base_lrs]


def in_turn(optimizer: Optimizer) -> LRScheduler:
    parts = [lr_scheduler.LinearLR(optimizer, total_iters=3), lr_scheduler.CosineAnnealingLR(optimizer, T_max=9)]
    return lr_scheduler.SequentialLR(optimizer, parts, milestones=[5])


def chained(optimizer: Optimizer) -> LRScheduler:
    parts = [lr_scheduler.ConstantLR(optimizer, total_iters=5), lr_scheduler.ExponentialLR(optimizer, gamma=0.9)]
    return lr_scheduler.ChainedScheduler(parts)


SCHEDULERS: dict[str, Callable[[Optimizer], LRScheduler]] = {
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, step_size=3),
    "MultiStepLR": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, milestones=[2, 6, 6]),
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    "LambdaLR, an object": lambda optimizer: lr_scheduler.LambdaLR(optimizer, Halving()),
    "MultiplicativeLR": lambda optimizer: lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.9 + epoch / 100),
    "LinearLR": lambda optimizer: lr_scheduler.LinearLR(optimizer, total_iters=6),
    "PolynomialLR": lambda optimizer: lr_scheduler.PolynomialLR(optimizer, total_iters=9),
    "CosineAnnealingLR": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=10),
    "WarmRestarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=3),
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=20),
    "CyclicLR": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, step_size_up=3),
    "ReduceLROnPlateau": lambda optimizer: ReduceLROnPlateau(optimizer, patience=2),
    "SequentialLR": in_turn,
    "ChainedScheduler": chained,
}


@pytest.fixture(autouse=True)
def keyring(tmp_path: Path) -> None:
    MasterKeyring.new(time.time_ns()).derive("unsteered", [Role.WORKER]).save(tmp_path / "worker.json")


def sgd(parameters: list[torch.nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.5)


def attached(folder: Path, optimizer: Optimizer, host: torch.nn.Module, resume: bool, **options: object) -> Session:
    return esper.attach(
        host,
        optimizer=optimizer,
        sites=["body"],
        required=False,
        environment={"ESPER_RUN": "", "ESPER_KEYRING": str(folder / "worker.json")},
        checkpoints=folder / "kept",
        resume=resume,
        **options,  # type: ignore[arg-type]
    )


def kept(run: Session) -> None:
    assert run.checkpoints is not None
    run.checkpoints.save(run.step_number, run.epoch)
    run.close()


def rates(folder: Path, make: Callable[[Optimizer], LRScheduler], *, resume: bool = False) -> list[float]:
    """At which each of some epochs was trained; then a checkpoint is made."""
    host = new_host()
    optimizer = sgd(list(host.parameters()))
    scheduler = make(optimizer)
    run = attached(folder, optimizer, host, resume, scheduler=scheduler)
    met = []
    for _ in range(NUM_EPOCHS):
        train(run, host, 1)
        met.append(optimizer.param_groups[0]["lr"])
        step(scheduler)
        run.epoch_end()
    kept(run)
    return met


def alone(make: Callable[[Optimizer], LRScheduler], num_epochs: int) -> list[float]:
    optimizer = sgd([torch.nn.Parameter(torch.zeros(1))])
    scheduler, met = make(optimizer), []
    for _ in range(num_epochs):
        met.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        step(scheduler)
    return met


def step(scheduler: LRScheduler) -> None:
    if isinstance(scheduler, ReduceLROnPlateau):
        scheduler.step(NO_GAIN)
    else:
        scheduler.step()


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_goes_on_where_it_was_left(tmp_path: Path, name: str) -> None:
    make = SCHEDULERS[name]
    met = [*rates(tmp_path, make), *rates(tmp_path, make, resume=True), *rates(tmp_path, make, resume=True)]
    assert met == alone(make, 3 * NUM_EPOCHS)
    assert met[NUM_EPOCHS:] != met[:NUM_EPOCHS] + met[:NUM_EPOCHS], "a scheduler that begins anew would pass"


def test_a_scheduler_whose_state_is_no_data_begins_anew_and_says_so(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        rates(tmp_path, Own)
        resumed = rates(tmp_path, Own, resume=True)
    assert [each["event"] for each in logs if each["event"].startswith("loop.")] == [
        "loop.unkept",
        "loop.begins_anew",
        "loop.unkept",
    ]
    assert "Halving" in next(each["reason"] for each in logs if each["event"] == "loop.unkept")
    assert len(resumed) == NUM_EPOCHS


def test_another_scheduler_than_the_checkpoint_has_begins_anew_and_says_so(tmp_path: Path) -> None:
    rates(tmp_path, in_turn)
    with structlog.testing.capture_logs() as logs:
        rates(tmp_path, chained, resume=True)
    [told] = [each for each in logs if each["event"] == "loop.begins_anew"]
    assert told["checkpoint"] == "SequentialLR(LinearLR, CosineAnnealingLR)"
    assert told["here"] == "ChainedScheduler(ConstantLR, ExponentialLR)"


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_scaler_goes_on_at_the_scale_that_it_had(tmp_path: Path, is_enabled: bool) -> None:
    scales = []
    for resume in (False, True):
        host = new_host()
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2, enabled=is_enabled)
        optimizer = sgd(list(host.parameters()))
        run = attached(tmp_path, optimizer, host, resume, scaler=scaler)
        for _ in range(3):
            with run.step():
                loss: torch.Tensor = scaler.scale(host(torch.ones(2, 8)).mean())
                loss.backward()  # type: ignore[no-untyped-call]
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        scales.append(scaler.get_scale())
        kept(run)
    assert scales == ([16.0, 64.0] if is_enabled else [1.0, 1.0])


def test_no_scheduler_is_none(tmp_path: Path) -> None:
    host = new_host()
    attached(tmp_path, sgd(list(host.parameters())), host, resume=False, scheduler=None).close()
