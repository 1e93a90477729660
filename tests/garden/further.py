"""What lives from the hundred and ten thousandth on are drawn from besides: how scripts go about a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from torch.optim import Optimizer, lr_scheduler, swa_utils

from esper.session import Session
from tests.garden import rare
from tests.garden.manners import Manner

FIRST_SEED = 110_000
"""Lives before this one are kept as they were drawn."""
SECONDS = 20.0
"""Of a step, by the clock of breakers: they open, let one through again and close within a life."""


class Plateau(lr_scheduler.ReduceLROnPlateau):
    """Of a metric that gets no better."""

    def step(self, metrics: Any = 1.0, epoch: int | None = None) -> None:  # type: ignore[override]
        super().step(metrics, epoch)


def _cycling(make: Callable[..., lr_scheduler.LRScheduler], optimizer: Optimizer) -> lr_scheduler.LRScheduler:
    """With its momentum, where it has one of a kind that can be cycled."""
    cycles = bool({"betas", "momentum"} & optimizer.defaults.keys())
    return make(optimizer, cycle_momentum=cycles)


def _in_turn(optimizer: Optimizer) -> lr_scheduler.LRScheduler:
    parts = [lr_scheduler.LinearLR(optimizer, total_iters=4), lr_scheduler.StepLR(optimizer, 3, 0.9)]
    return lr_scheduler.SequentialLR(optimizer, parts, [4])


def _chained(optimizer: Optimizer) -> lr_scheduler.LRScheduler:
    parts = [lr_scheduler.LinearLR(optimizer, total_iters=4), lr_scheduler.ExponentialLR(optimizer, 0.95)]
    return lr_scheduler.ChainedScheduler(parts)


SCHEDULERS: Mapping[str, Callable[[Optimizer], lr_scheduler.LRScheduler]] = {
    "one cycle": partial(_cycling, partial(lr_scheduler.OneCycleLR, max_lr=0.05, total_steps=500)),
    "cyclic": partial(_cycling, partial(lr_scheduler.CyclicLR, base_lr=0.001, max_lr=0.05, step_size_up=3)),
    "plateau": partial(Plateau, patience=2, min_lr=[0.001]),
    "lambda": partial(lr_scheduler.LambdaLR, lr_lambda=lambda number: 0.95**number),
    "in turn": _in_turn,
    "chained": _chained,
    "restarts": partial(lr_scheduler.CosineAnnealingWarmRestarts, T_0=5),
    "swa": partial(swa_utils.SWALR, swa_lr=0.02),
}


def drawn(dice: Random, kind: str, manner: Manner) -> Manner:
    """The manner with what it does besides."""
    can_scale = not manner.closure and kind not in rare.FITTING  # torch unscales no such gradients
    scales = can_scale and (manner.scales or dice.random() < 0.2)
    scheduler = dice.choice([manner.scheduler, *SCHEDULERS]) if dice.random() < 0.5 else manner.scheduler
    if manner.optimizer == "lbfgs" and scheduler in ("one cycle", "cyclic", "swa"):
        scheduler = ""
    return replace(
        manner,
        scales=scales,
        scheduler=scheduler,
        tells=dice.random() < 0.7,
        strays=dice.random() < 0.3,
        num_updates=1 if manner.closure else dice.choice([1, 1, 1, 2]),
        rests=dice.choice([0.0, 0.0, 0.3]),
        overflows=dice.choice([0.0, 0.3]),
    )


def put_on_the_clock(run: Session) -> None:
    """Have breakers go by steps."""

    def clock() -> float:
        return run.step_number * SECONDS

    run.executor._collector.clock = clock
    for breaker in run.executor.breakers.values():
        met = breaker.state_dict()  # what another process has met is by the clock that it is taken up with
        breaker._clock = clock
        breaker.load_state_dict(met)
