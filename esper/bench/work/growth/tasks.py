"""Small bundled data sets, each with a host that is too small for it, and what it grows to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

BATCH = 32


@dataclass(frozen=True, slots=True)
class Task:
    """A host of inputs-`hidden`-classes, and the inner width of what a seed adds to its first layer.

    Its name is that of a data set in sklearn.
    """

    name: str
    hidden: int
    seed_hidden: int


TASKS = {
    "digits": Task("digits", hidden=6, seed_hidden=16),
    "breast_cancer": Task("breast_cancer", hidden=1, seed_hidden=2),
}


@dataclass(frozen=True)
class Examples:
    """Standardised inputs and classes, split once and for all: half to train on, a quarter each for gates and test."""

    task: Task
    train: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, task: Task) -> Examples:
        from sklearn import datasets  # most of two seconds, with scipy.stats, which few who come here need

        inputs, classes = getattr(datasets, f"load_{task.name}")(return_X_y=True)
        x, y = torch.tensor(inputs, dtype=torch.float32), torch.tensor(classes, dtype=torch.int64)
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
        half, quarter = len(y) // 2, len(y) // 4
        mean, spread = x[order[:half]].mean(0), x[order[:half]].std(0).clamp(min=1e-6)
        parts = order[:half], order[half : half + quarter], order[half + quarter :]
        return cls(task, *(((x[part] - mean) / spread, y[part]) for part in parts))

    @property
    def num_inputs(self) -> int:
        return self.train[0].shape[1]

    @property
    def num_classes(self) -> int:
        return int(self.train[1].max()) + 1

    def batch(self, seed: int, step: int) -> tuple[Tensor, Tensor]:
        """A function of both: every arm of a seed has the same."""
        draw = torch.Generator().manual_seed(seed * 1_000_003 + step)
        picked = torch.randint(len(self.train[1]), (BATCH,), generator=draw)
        return self.train[0][picked], self.train[1][picked]

    def host(self, seed: int, hidden: int = 0) -> nn.Sequential:
        """From this seed, of the task's width or of another."""
        torch.manual_seed(seed)
        width = hidden or self.task.hidden
        model = nn.Sequential()
        layers = nn.Linear(self.num_inputs, width), nn.ReLU(), nn.Linear(width, self.num_classes)
        for name, layer in zip(("hidden", "act", "head"), layers, strict=True):
            model.add_module(name, layer)
        return model

    def width_of(self, num_parameters: int) -> int:
        """Hidden units of the host whose parameters come nearest to this number."""
        per_unit = self.num_inputs + 1 + self.num_classes
        return max(1, round((num_parameters - self.num_classes) / per_unit))


def size_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@torch.no_grad()
def accuracy(model: nn.Module, data: tuple[Tensor, Tensor]) -> float:
    """Share read rightly, in eval mode."""
    was = model.training
    model.eval()
    found = float((model(data[0]).argmax(-1) == data[1]).float().mean())
    model.train(was)
    return found
