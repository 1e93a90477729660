"""How a script trains: its optimizer, what is around its steps, and what may befall one."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import torch
from torch import nn
from torch.optim import lr_scheduler


def eight_bits(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """torchao's; its step would compile itself, for longer than a life lasts."""
    from torchao.optim import AdamW8bit

    torch.compiler.set_stance("force_eager")
    made: torch.optim.Optimizer = AdamW8bit(parameters, lr=0.01)
    return made


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.01),
    "sgd foreach": partial(torch.optim.SGD, lr=0.05, momentum=0.9, foreach=True),
    "adamw": partial(torch.optim.AdamW, lr=0.01),
    "adamw foreach": partial(torch.optim.AdamW, lr=0.01, foreach=True),
    "adamw fused": partial(torch.optim.AdamW, lr=0.01, fused=True),
    "adam": partial(torch.optim.Adam, lr=0.01, amsgrad=True),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.005, momentum=0.5, centered=True),
    "lbfgs": partial(torch.optim.LBFGS, lr=0.05, max_iter=2),
}
SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]] = {
    "step": partial(lr_scheduler.StepLR, step_size=3, gamma=0.9),
    "cosine": partial(lr_scheduler.CosineAnnealingLR, T_max=20),
}
EVERYWHERE = tuple(OPTIMIZERS)
"""Those that are drawn from: what else is installed makes no other life of a seed."""
EIGHT_BITS = "adamw 8 bit"
if importlib.util.find_spec("torchao") is not None:
    OPTIMIZERS[EIGHT_BITS] = eight_bits
EVENTS = ("raises", "skips", "forgets", "not finite", "empty", "single", "two losses")
"""What may befall a step: its forward raises; nothing is run; the optimizer does not step; a batch is not finite, has
no example or one; a loss is made of two forwards."""


@dataclass(frozen=True)
class Manner:
    """How a script trains."""

    optimizer: str
    num_micro: int
    clips: bool
    autocast: bool
    scales: bool
    scheduler: str
    checkpoints: str  # "": none; reentrant or not
    closure: bool
    sets_to_none: bool
    evaluates: str  # "": not; no_grad or inference_mode
    eventful: float  # share of steps that something befalls
    tells: bool = True  # attach() of its scheduler
    strays: bool = False  # between two steps a loss that is not its own goes back through the host
    num_updates: int = 1  # of the optimizer, in one step
    rests: float = 0.0  # share of steps, four at a time, that it trains in evaluation mode
    overflows: float = 0.0  # share of steps whose scaled gradients do
    groups: tuple[float, ...] = ()  # learning rates of further groups of parameters
    named: bool = False  # the optimizer is given names with its parameters
    last: bool = False  # images come with their channels last
    lengths: bool = False  # sequences are of another one in each batch
    zeroes_first: bool = False  # gradients, before its backward: between two steps they stay
    num_passes: int = 1  # so many make one step of the optimizer, with what they accumulate
    events: tuple[str, ...] = ()  # that may befall a step, beside EVENTS
    looks: str = ""  # it evaluates between a forward and its backward; "": not; no_grad or inference_mode

    @classmethod
    def draw(cls, dice: Random) -> Manner:
        optimizer = dice.choice(EVERYWHERE)
        closure = optimizer == "lbfgs" or dice.random() < 0.15
        return cls(
            optimizer,
            dice.choice([1, 1, 2, 3]),
            dice.random() < 0.3,
            dice.random() < 0.25,
            not closure and dice.random() < 0.2,
            dice.choice(["", "", *SCHEDULERS]),
            dice.choice(["", "", "", "reentrant", "not reentrant"]),
            closure,
            dice.random() < 0.7,
            dice.choice(["", "no_grad", "inference_mode"]),
            dice.choice([0.0, 0.1, 0.3]),
        )

    def event(self, number: int) -> str:
        """What befalls the step with this batch; most often nothing."""
        dice = Random(number)
        return dice.choice(EVENTS + self.events) if dice.random() < self.eventful else ""

    def is_resting(self, number: int) -> bool:
        return Random(f"rests {number // 4}").random() < self.rests

    def is_overflowing(self, number: int) -> bool:
        return self.scales and Random(f"overflows {number}").random() < self.overflows
