"""What lives from the seventy-thousandth on are drawn from besides: hosts and optimizers that few scripts have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random

import torch
from torch import Tensor, nn, optim
from torch.nn.utils import rnn

from tests.garden.hosts import KINDS, Kind, layers
from tests.garden.manners import Manner
from tests.garden.more_hosts import MORE

FIRST_SEED = 70_000
"""Lives before this one are kept as they were drawn."""


class Waves(nn.Module):
    """A part of it is complex, a site and a parameter beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.turn = nn.Linear(8, 8), nn.Linear(8, 8, dtype=torch.cfloat)
        self.phase, self.head = nn.Parameter(torch.ones(8, dtype=torch.cfloat)), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.turn(self.body(x).to(self.turn.weight.dtype)) * self.phase
        z: Tensor = self.head(y.abs().to(x.dtype))
        return z


class Words(nn.Module):
    """Token ids, whose embedding has sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(12, 8, sparse=True), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        y: Tensor = self.head(torch.tanh(self.embed(ids)).mean(1))
        return y


class Packs(nn.Module):
    """Its sequences are of different lengths: what the LSTM gives is packed."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        packed = rnn.pack_padded_sequence(x, torch.tensor([5, 4, 3, 1])[: len(x)], batch_first=True)
        states, _ = rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        y: Tensor = self.head(states)
        return y


class Loose(nn.Module):
    """Parameters in a list, in a dict and bare, one of them without dimensions; a buffer that is made anew."""

    num: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.mixes = nn.ParameterList(torch.eye(8) + 0.1 * torch.randn(8, 8) for _ in range(2))
        self.scales = nn.ParameterDict({"wide": torch.ones(8)})
        self.head, self.gain = nn.Linear(8, 3), nn.Parameter(torch.tensor(1.0))
        self.register_buffer("num", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        for mix in self.mixes:
            x = torch.tanh(x @ mix)
        if self.training:
            self.num = self.num + 1
        y: Tensor = self.head(x * self.scales["wide"]) * self.gain
        return y


class Narrows(nn.Module):
    """Half of its layers are given sparse tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.mix, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.mix(torch.relu(self.body(x)).to_sparse()))
        return y


HOSTS: Mapping[str, Kind] = {
    "waves": Kind(Waves, ("body", "head"), (8,)),
    "words": Kind(Words, ("embed", "head"), (5,), num_ids=12),
    "packs": Kind(Packs, ("lstm", "head"), (5, 8)),
    "loose": Kind(Loose, ("head",), (8,)),
    "narrows": Kind(Narrows, ("mix", "head"), (8,), sparse=True),
    "half": Kind(lambda: layers().half(), ("0", "3"), (8,), in_place=True),
}
EVERY: Mapping[str, Kind] = {**KINDS, **MORE, **HOSTS}
OPTIMIZERS: Mapping[str, Callable[[Sequence[nn.Parameter]], optim.Optimizer]] = {
    "sgd plain": partial(optim.SGD, lr=0.05),
    "sgd fused": partial(optim.SGD, lr=0.05, momentum=0.9, fused=True),
    "adagrad": partial(optim.Adagrad, lr=0.05),
    "adadelta": partial(optim.Adadelta, lr=0.5),
    "adamax": partial(optim.Adamax, lr=0.01),
    "nadam": partial(optim.NAdam, lr=0.01),
    "radam": partial(optim.RAdam, lr=0.01, foreach=True),
    "rprop": partial(optim.Rprop, lr=0.001),
    "asgd": partial(optim.ASGD, lr=0.05),
    "adafactor": partial(optim.Adafactor, lr=0.01),
    "adamw by a tensor": lambda parameters: optim.AdamW(parameters, lr=torch.tensor(0.01)),
}
MOMENTUM_FROM = 230_000
"""From this life on an embedding with sparse gradients may have momentum."""
WITH_MOMENTUM: Mapping[str, Callable[[Sequence[nn.Parameter]], optim.Optimizer]] = {
    "sgd momentum": partial(optim.SGD, lr=0.05, momentum=0.9),
    "sgd nesterov": partial(optim.SGD, lr=0.05, momentum=0.9, nesterov=True),
}
FITTING: Mapping[str, Sequence[str]] = {
    "words": ("sgd plain", "adagrad"),
    "waves": ("sgd", "sgd plain", "sgd foreach", "adamw", "adamw foreach"),
    "half": ("sgd", "sgd plain", "sgd foreach"),
}
"""Optimizers that can train a host, where others can't."""


def drawn(dice: Random, kind: str, manner: Manner) -> tuple[str, Manner]:
    """The host and how it is trained; most often others than these.

    A fused SGD trains none with a layer that some batches skip: torch's own steps no group of which some have momentum
    and some have none (TypeError), and a bare script ends at that layer's first gradient.
    """
    if dice.random() < 0.5:
        kind = dice.choice([*HOSTS])
    if kind in FITTING or dice.random() < 0.5:
        name = dice.choice(FITTING.get(kind, [*OPTIMIZERS]))
        fits = (kind, name) != ("skips", "sgd fused")
        manner = replace(manner, optimizer=name if fits else "sgd", closure=False)
    if kind in ("words", "half"):  # torch has no norm of sparse gradients, and unscales none of float16
        manner = replace(manner, clips=False, scales=False)
    if kind == "waves":  # a layer that is complex is cast by neither
        manner = replace(manner, autocast=False)
    return kind, manner
