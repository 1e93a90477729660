"""What lives from the five hundred and forty-one thousandth on have besides: halts, a loader, several schedulers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer, lr_scheduler, swa_utils

if TYPE_CHECKING:
    from tests.garden.loops import Loop
    from tests.garden.plan import Plan

FIRST_SEED = 541_000
"""Lives before this one are kept as they were drawn."""
SEVERAL = "several"
RAISED = RuntimeError, ValueError, AssertionError, TypeError
"""What torch says where it has no such derivative of a host, with a seed or without."""


class Reader:
    """Where a script's loader stands, which goes with checkpoints."""

    def __init__(self) -> None:
        self.num_read = 0

    def state_dict(self) -> dict[str, Any]:
        return {"num_read": self.num_read}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.num_read = state["num_read"]


class Several:
    """Two schedulers of one optimizer, the one behind the other."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.each: list[lr_scheduler.LRScheduler] = [
            lr_scheduler.StepLR(optimizer, 3, 0.9),
            lr_scheduler.ExponentialLR(optimizer, 0.98),
        ]

    def step(self) -> None:
        for each in self.each:
            each.step()

    def state_dict(self) -> dict[str, Any]:
        return {str(at): each.state_dict() for at, each in enumerate(self.each)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for at, each in enumerate(self.each):
            each.load_state_dict(state[str(at)])


def drawn(plan: Plan) -> Plan:
    """The same life, whose script has more beside its model."""
    dice = Random(f"besides {plan.seed}")
    manner = plan.manner
    several = dice.random() < 0.15 and manner.scheduler not in ("one cycle", "cyclic")  # these count on their own rates
    looks = dice.choice(["", "", "no_grad", "inference_mode"]) if plan.wide.compiles != "model" else ""
    manner = replace(manner, looks=looks, scheduler=SEVERAL if several else manner.scheduler)
    wide = replace(plan.wide, pauses=dice.choice([plan.wide.pauses, 0.3]))
    habits = replace(plan.habits, asks=dice.random() < 0.5)
    return replace(plan, manner=manner, wide=wide, habits=habits, halts=dice.random() < 0.5, reads=dice.random() < 0.5)


def averaged(loop: Loop, dice: Random) -> None:
    """An average of the host, asked something."""
    average = swa_utils.get_ema_multi_avg_fn(0.5)  # type: ignore[no-untyped-call]
    kept = swa_utils.AveragedModel(loop.host, multi_avg_fn=average, use_buffers=dice.random() < 0.5)
    with suppress(*RAISED):  # as of integers among the buffers
        for _ in range(2):
            kept.update_parameters(loop.host)
    with torch.no_grad():
        loop.outputs.append(loop.first(kept.eval()(loop.batch(-8))).clone())


def differentiated(loop: Loop, dice: Random) -> None:
    """The host as a function of its parameters, by torch.func."""
    if len([*loop.host.named_modules(remove_duplicate=False)]) != len([*loop.host.named_modules()]):
        return
    given = {name: each.detach() for name, each in loop.host.named_parameters() if each.is_floating_point()}

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return loop.first(torch.func.functional_call(loop.host, parameters, (loop.batch(-9),))).abs().float().mean()

    with suppress(*RAISED):
        found = torch.func.grad(loss)(given)
        loop.outputs += [each.detach().clone() for each in found.values()]


def saved(loop: Loop, dice: Random) -> None:
    """Weights that were kept in an earlier step, or are from now on."""
    now = loop.host.state_dict()
    kept = loop.kept if loop.kept.keys() == now.keys() and dice.random() < 0.5 else {}
    if kept:
        loop.host.load_state_dict(kept)
    loop.kept = {name: each.detach().clone() for name, each in now.items()}


ASKING: Mapping[str, Callable[[Loop, Random], None]] = {
    each.__name__: each for each in (averaged, differentiated, saved)
}
