"""Small hosts of many kinds, their sites, and batches that are a function of a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# Tensors this small gain nothing from threads.
torch.set_num_threads(1)


class Twice(nn.Module):
    """One layer that is called twice in each forward, and a normalisation between."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.head = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(torch.relu(self.layer(self.norm(self.layer(x)))))
        return y


class Pair(nn.Module):
    """Its body gives a tuple, and its end a mapping."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = Split(), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        first, second = self.body(x)
        return {"logits": self.head(torch.relu_(first)) + second.mean(), "second": second}


class Split(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(8, 6), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x), self.other(x)


class Tied(nn.Module):
    """Token ids to logits, by one matrix at both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(12, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        y: Tensor = self.head(torch.tanh(self.mix(self.embed(ids))))
        return y


class Attends(nn.Module):
    """Attention, which gives a tuple with None in it, in a block with a residual path that is written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        mixed, _ = self.attention(y, y, y, need_weights=False)
        y += mixed
        z: Tensor = self.head(y).mean(1)
        return z


class Skips(nn.Module):
    """A layer that only some batches go through, beside a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.extra, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.body.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.body(x))
        if x.numel() and float(x.detach().flatten()[0]) > 0:
            y = y + self.extra(y)
        z: Tensor = self.head(y)
        return z


class Recurs(nn.Module):
    """A GRU, whose output is a tuple of two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(8, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(x)
        y: Tensor = self.head(states[:, -1])
        return y


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 10), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(10, 3))


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.Flatten(), nn.Linear(64, 3)
    )


def encoder() -> nn.Module:
    """torch's own, which takes a fast path in evaluation where nothing hangs on it."""
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(8, 3))


@dataclass(frozen=True)
class Kind:
    """How a host is made, which of its modules are sites, and the shape of an example."""

    make: Callable[[], nn.Module]
    sites: tuple[str, ...]
    shape: tuple[int, ...]
    num_ids: int = 0  # above 0: examples are ids below it
    accumulates: bool = False  # its backward must be one that accumulates, with no word of which gradients
    in_place: bool = False  # it writes to what a module gave, which torch forbids behind a hook on its backward
    sparse: bool = False  # so is what a module is given, of which torch has no hook on its backward either

    def host(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            return self.make()

    def batch(self, number: int, size: int = 4) -> Tensor:
        generator = torch.Generator().manual_seed(1000 + number)
        if self.num_ids:
            return torch.randint(self.num_ids, (size, *self.shape), generator=generator)
        return torch.randn(size, *self.shape, generator=generator)


KINDS: Mapping[str, Kind] = {
    "layers": Kind(layers, ("0", "3"), (8,), in_place=True),
    "images": Kind(images, ("0", "1", "3"), (2, 4, 4)),
    "twice": Kind(Twice, ("layer", "norm"), (8,)),
    "pair": Kind(Pair, ("body", "head"), (8,), in_place=True),
    "tied": Kind(Tied, ("embed", "mix", "head"), (5,), num_ids=12),
    "attends": Kind(Attends, ("attention", "norm", "head"), (5, 8), in_place=True),
    "skips": Kind(Skips, ("body", "extra"), (8,)),
    "recurs": Kind(Recurs, ("gru", "head"), (5, 8)),
    "encoder": Kind(encoder, ("0.layers.0", "0.layers.0.linear1", "1"), (5, 8)),
}


def first_tensor(output: Any) -> Tensor:
    """What a loss can be made of."""
    return first_tensor(next(iter(output.values()))) if isinstance(output, Mapping) else _tensor(output)


def _tensor(output: Any) -> Tensor:
    assert isinstance(output, Tensor)
    return output


def each_loss(output: Any) -> Tensor:
    """Per example."""
    return (first_tensor(output).float() - 1.0).flatten(1).square().mean(1)
