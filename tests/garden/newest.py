"""What lives from the five hundred and thirty thousandth on have besides: gradients that stay, and models that grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tests.garden.manners import EIGHT_BITS

if TYPE_CHECKING:
    from tests.garden.loops import Loop
    from tests.garden.manners import Manner
    from tests.garden.plan import Plan

FIRST_SEED = 530_000
"""Lives before this one are kept as they were drawn."""
EVENTS = ("raises late", "raises last")
"""What may befall a step besides: it raises before the optimizer steps, or behind that."""
LENGTHS = (5, 3, 1, 4, 2)
ONE_GROUP = ("lbfgs", EIGHT_BITS)
OF_ANY_LENGTH = frozenset({"tied", "attends", "encoder", "recurs", "words"})
"""Hosts of sequences."""
IMAGES = frozenset({"images", "last"})
"""Hosts of images: seeds compiled there by aot_eager may resume to other bits, as docs/promises.md says."""


class Late(RuntimeError):
    """What a script raises over what it met beside its model."""


class Gain(nn.Module):
    """A part that the script adds to a model that trains: it scales what a module gives, as its hook."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones((), dtype=dtype))

    def forward(self, module: nn.Module, given: Any, output: Any) -> Any:
        return output * self.gain if isinstance(output, Tensor) and output.dtype == self.gain.dtype else None


def drawn(plan: Plan) -> Plan:
    """The same life, whose script goes about its gradients otherwise, and may meddle in more ways."""
    dice = Random(f"newest {plan.seed}")
    meddles = dice.choice([plan.habits.meddles, 0.3]) if not plan.wide.compiles else 0.0
    habits = replace(plan.habits, meddles=meddles, grows=dice.random() < 0.5)
    settings = replace(plan.settings, seeds_per_site=dice.choice([plan.settings.seeds_per_site, 3, 4]))
    wide = replace(plan.wide, backend="eager") if plan.kind in IMAGES else plan.wide
    return replace(
        plan,
        manner=_manner(plan, dice),
        habits=habits,
        wide=wide,
        settings=wide.compiling(settings),
        steps_per_epoch=dice.choice([0, 0, 3]),
        checkpoints_kept=dice.choice([1, 2, 3]),
    )


def _manner(plan: Plan, dice: Random) -> Manner:
    manner = plan.manner
    num_passes = 1 if manner.closure else dice.choice([1, 1, 2, 3])
    return replace(
        manner,
        lengths=plan.kind in OF_ANY_LENGTH and plan.wide.compiles != "model" and dice.random() < 0.5,
        zeroes_first=not manner.closure and num_passes == 1 and dice.random() < 0.5,
        num_passes=num_passes,
        events=EVENTS if manner.eventful and dice.random() < 0.5 else (),
    )


def grow(loop: Loop, dice: Random) -> None:
    """A module gets a part that learns, which the optimizer is told of."""
    module, groups = loop.host.get_submodule(dice.choice(loop.kind.sites)), loop.optimizer.param_groups
    if loop.scheduler is not None or loop.manner.optimizer in ONE_GROUP or isinstance(module, nn.Sequential):
        return
    gain = Gain(next(each.dtype for each in loop.host.parameters() if each.is_floating_point()))
    name = f"added{sum(isinstance(each, Gain) for each in loop.host.modules())}"
    module.add_module(name, gain)
    module.register_forward_hook(gain)
    given = [(f"{name}.gain", gain.gain)] if "param_names" in groups[0] else [gain.gain]
    rate = groups[0]["lr"]
    loop.optimizer.add_param_group({"params": given, "lr": rate.clone() if isinstance(rate, Tensor) else rate})
    loop.num_casts += 1


def drop(loop: Loop, dice: Random) -> None:
    """The script trains a parameter no longer, without freezing it."""
    group = loop.optimizer.param_groups[0]  # the script's own: those of fossils come behind it
    if loop.manner.optimizer != "lbfgs" and len(group["params"]) > 1:
        loop.optimizer.state.pop(group["params"].pop(0), None)
        if "param_names" in group:
            group["param_names"].pop(0)
        loop.num_casts += 1


def slow(loop: Loop, dice: Random) -> None:
    """Rates by hand, as scripts do that have no scheduler."""
    for group in loop.optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].mul_(0.9)
        else:
            group["lr"] *= 0.9
        if group.get("weight_decay"):
            group["weight_decay"] *= 0.5


def forget(loop: Loop, dice: Random) -> None:
    """All that its optimizer remembers, as for a new task."""
    if loop.manner.optimizer not in ("lbfgs", "adagrad"):  # one makes its state once, the other steps none without
        loop.optimizer.state.clear()


GROWING: Mapping[str, Callable[[Loop, Random], None]] = {each.__name__: each for each in (grow, drop, slow, forget)}
