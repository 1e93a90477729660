"""Hosts whose forward does what few do: checkpoints, transforms, other precisions, keywords, parts without gradient."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

from tests.garden.hosts import Kind, images, layers

FIRST_SEED = 26_000
"""From this life on these are drawn, too."""


class Normed(nn.Module):
    """Weights that are made anew in each forward, one of them with buffers that every call moves."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = weight_norm(nn.Linear(8, 8)), spectral_norm(nn.Linear(8, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(torch.tanh(self.second(torch.relu(self.first(x)))))
        return y


class Adds(nn.Module):
    """Its inputs come by keyword, its output in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(8, 6), nn.Linear(6, 6)

    def forward(self, *, given: Tensor, state: Tensor) -> list[Tensor]:
        mixed = self.left(given) + self.right(state)
        return [mixed, state]


class Keywords(nn.Module):
    """A cell that is called in turn, a number of times that depends on the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = Adds(), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(*x.shape[:-1], 6)
        for _ in range(1 + int(x.numel() and float(x.detach().flatten()[0]) > 0)):
            state = torch.tanh(self.cell(given=x, state=state)[0])
        y: Tensor = self.head(state)
        return y


class Saves(nn.Module):
    """One of its layers is below a checkpoint of its own."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first, self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        y = y + checkpoint(lambda given: torch.tanh(self.body(given)), y, use_reentrant=self.reentrant)
        z: Tensor = self.head(y)
        return z


class Parts(nn.Module):
    """A backbone without gradient, a branch whose output is used detached, and noise of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.branch, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = torch.relu(self.backbone(x))
        noise = 0.01 * torch.randn_like(y) if self.training else 0.0
        z: Tensor = self.head(y + noise + self.branch(y).detach() * 0.1)
        return z


class Mapped(nn.Module):
    """A layer that is called for each example alone, by vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.func.vmap(self.each)(x) if len(x) else self.each(x)
        z: Tensor = self.head(torch.relu(y))
        return z


class Turns(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.fft.rfft(x.float())
        return y


class Fourier(nn.Module):
    """One of its sites gives complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.turn, self.head = nn.Linear(8, 8), Turns(), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.turn(self.body(x))
        z: Tensor = self.head(y.abs().to(x.dtype))
        return z


class Twins(nn.Module):
    """One module under two names, which another holds as well."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second, self.both = self.first, nn.Sequential(self.first, nn.Tanh())
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.both(self.first(x)) + self.second(x))
        return y


MORE: Mapping[str, Kind] = {
    "normed": Kind(Normed, ("first", "second", "head"), (8,)),
    "keywords": Kind(Keywords, ("cell", "cell.left", "head"), (8,)),
    "saves": Kind(partial(Saves, False), ("body", "first"), (8,)),
    "saves again": Kind(partial(Saves, True), ("body", "head"), (8,), accumulates=True),
    "parts": Kind(Parts, ("backbone", "branch", "head"), (8,)),
    "mapped": Kind(Mapped, ("each", "head"), (8,)),
    "fourier": Kind(Fourier, ("turn", "body"), (8,)),
    "twins": Kind(Twins, ("first", "both"), (8,)),
    "small": Kind(lambda: layers().bfloat16(), ("0", "3"), (8,), in_place=True),
    "large": Kind(lambda: layers().double(), ("0", "3"), (8,), in_place=True),
    "last": Kind(lambda: images().to(memory_format=torch.channels_last), ("0", "1", "3"), (2, 4, 4)),  # type: ignore[call-overload]
}
