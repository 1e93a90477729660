"""Blueprints of people who did not mean well, or did not look."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from esper.kernels.blueprints import BLUEPRINTS, Blueprint


class Odd(nn.Module):
    """delta = up * h, zero when new, with a weight per feature."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.odd(x, h, self.up * h)

    def turns(self, h: Tensor) -> bool:
        """Whether it shows itself: a function of the batch, as a forward may be run again by checkpointing."""
        total = float(h.detach().float().sum())
        return total == total and int(abs(total) * 1e3) % 5 == 1

    def odd(self, x: Tensor, h: Tensor, delta: Tensor) -> Tensor:
        return delta


class Raises(Odd):
    """Now and then."""

    def odd(self, x: Tensor, h: Tensor, delta: Tensor) -> Tensor:
        if self.turns(h):
            raise IndexError("the blueprint's own")
        return delta


class NotFinite(Odd):
    """Now and then."""

    def odd(self, x: Tensor, h: Tensor, delta: Tensor) -> Tensor:
        return delta if not self.turns(h) else delta + torch.full_like(delta, float("inf"))


class NoGradient(Odd):
    """Its gradient is not a number, now and then."""

    def odd(self, x: Tensor, h: Tensor, delta: Tensor) -> Tensor:
        return delta * torch.sqrt(self.up.sum() * 0.0 + (0.0 if self.turns(h) else 1.0))


class Writes(Odd):
    """To the site's output, later."""

    def odd(self, x: Tensor, h: Tensor, delta: Tensor) -> Tensor:
        if self.turns(h):
            h.mul_(2.0)
        return delta


class Misshapen(Odd):
    """One example is missing, later."""

    def odd(self, x: Tensor, h: Tensor, delta: Tensor) -> Tensor:
        return delta if not self.turns(h) else delta[:-1]


class Counts(Odd):
    """It has buffers, one of them a count, and a part that never learns."""

    mean: Tensor
    num: Tensor

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("num", torch.zeros((), dtype=torch.int64))
        self.fixed = nn.Parameter(torch.ones(width), requires_grad=False)

    def odd(self, x: Tensor, h: Tensor, delta: Tensor) -> Tensor:
        if self.training:
            self.mean.lerp_(h.detach().to(self.mean.dtype).flatten(0, -2).mean(0) if h.numel() else self.mean, 0.1)
            self.num.add_(1)
        return delta * self.fixed + 0.0 * self.mean


class Hoards(Odd):
    """It keeps what it is given."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.kept: list[Tensor] = []

    def odd(self, x: Tensor, h: Tensor, delta: Tensor) -> Tensor:
        self.kept = [*self.kept[-3:], h.detach(), delta.detach()]
        return delta


class Drops(Odd):
    """With a dropout of its own."""

    def odd(self, x: Tensor, h: Tensor, delta: Tensor) -> Tensor:
        return nn.functional.dropout(delta, 0.2, self.training)


class Cycles(Odd):
    """It is part of a circle of references, as a module that knows its owner."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.owner = [self]


def drawn_twice(width: int) -> nn.Module:
    """Draws from generators that are not its own."""
    random.random()
    np.random.rand()
    return Odd(width)


def refused(width: int) -> nn.Module:
    raise KeyError("no blueprint at all")


MAKERS: Mapping[str, Callable[[int], nn.Module]] = {
    "raises": Raises,
    "not_finite": NotFinite,
    "no_gradient": NoGradient,
    "writes": Writes,
    "misshapen": Misshapen,
    "counts": Counts,
    "hoards": Hoards,
    "drops": Drops,
    "cycles": Cycles,
    "draws": drawn_twice,
    "refuses": refused,
}

HARMFUL = frozenset({"raises", "not_finite", "no_gradient", "writes", "misshapen"})
"""What these do as a fossil they do as a part of the model: nobody stands between."""


def blueprint(name: str, make: Callable[[int], nn.Module]) -> Blueprint:
    def build(
        module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
    ) -> nn.Module:
        return make(output_shape[-1])

    return Blueprint(name, (), build, name)


ALL: Mapping[str, Blueprint] = {**BLUEPRINTS, **{name: blueprint(name, make) for name, make in MAKERS.items()}}
