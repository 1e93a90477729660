"""Handwritten digits and a host that is too small for them on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy
import torch
from torch import nn

from esper.errors import SettingError

NUM_HIDDEN = 10
BATCH = 32


@dataclass(frozen=True)
class Digits:
    """1,797 images of 8 x 8 pixels in [0, 1] as rows of 64, and their classes, split once and for all."""

    train: tuple[torch.Tensor, torch.Tensor]
    holdout: tuple[torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor]

    @classmethod
    def load(cls, device: torch.device) -> Digits:
        """Read scikit-learn's bundled copy: 1,077 to train on, 360 for the gates, 360 to test on."""
        table = numpy.loadtxt(bundled(), delimiter=",", dtype=numpy.float32)
        images = torch.from_numpy(table[:, :-1]) / 16.0
        classes = torch.from_numpy(table[:, -1]).to(torch.int64)
        order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(0))
        test, holdout, train = order[:360], order[360:720], order[720:]
        return cls(*((images[part].to(device), classes[part].to(device)) for part in (train, holdout, test)))


def bundled() -> Path:
    """The file that `sklearn.datasets.load_digits` reads, without importing that: a second, in each trainer."""
    found = find_spec("sklearn")
    places = [] if found is None else found.submodule_search_locations or []
    for place in places:
        path = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            return path
    raise SettingError("data set", "digits", "scikit-learn, which brings it along: pip install scikit-learn")


def batches(
    data: tuple[torch.Tensor, torch.Tensor], epoch: int, rank: int, world_size: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """This rank's batches of an epoch: a function of (epoch, rank) alone. Every rank gets equally many."""
    inputs, targets = data
    if not len(targets):
        raise SettingError("data set", "0 examples", "at least one batch per rank")
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(epoch))
    for chunk in torch.split(order, BATCH * world_size):
        if len(chunk) == BATCH * world_size:
            mine = chunk[rank::world_size]
            yield inputs[mine], targets[mine]


def host() -> nn.Module:
    """64 -> 10 -> 10, the first layer random and frozen: ten random features cannot tell ten digits apart well."""
    chance = torch.Generator().manual_seed(1)
    torch.manual_seed(0)
    hidden, head = nn.Linear(64, NUM_HIDDEN), nn.Linear(NUM_HIDDEN, 10)
    nn.init.kaiming_normal_(hidden.weight, generator=chance)
    hidden.requires_grad_(False)
    model = nn.Sequential()
    for name, layer in {"hidden": hidden, "act": nn.ReLU(), "head": head}.items():
        model.add_module(name, layer)
    return model


@torch.no_grad()
def accuracy(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Share of the examples that the model classifies rightly, in eval mode."""
    model.eval()
    hits = (model(data[0]).argmax(1) == data[1]).float().mean()
    model.train()
    return float(hits)
