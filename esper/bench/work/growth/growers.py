"""Ways to train a model that may grow: the arms that `growth` compares, each step by step on the same batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from esper.bench.work.growth.tasks import Examples, size_of
from esper.kernels.blueprints import BLUEPRINTS

RATE = 3e-3
GROWTHS = 3  # of gromo: one adds at most as many units as there are classes


class Plain:
    """A model trained as it is; `at` is where others change it before a step."""

    def __init__(self, data: Examples, model: nn.Module) -> None:
        self.data, self.model = data, model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)

    def at(self, step: int) -> None: ...

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        torch.autograd.backward(functional.cross_entropy(self.model(inputs), targets))
        self.optimizer.step()
        self.optimizer.zero_grad()

    def close(self) -> None: ...

    @property
    def flops(self) -> int:
        """Of one example: 6 a parameter, 4 where it is frozen, as a backward still goes through it (2 each for the
        forward, the gradient of the output and that of the weight; Kaplan et al. 2020, arXiv 2001.08361, 2.1)."""
        return sum((6 if each.requires_grad else 4) * each.numel() for each in self.model.parameters())

    @property
    def num_parameters(self) -> int:
        return size_of(self.model)


def host_only(data: Examples, seed: int, graft_at: int) -> Plain:
    return Plain(data, data.host(seed))


def final_size(data: Examples, seed: int, graft_at: int) -> Plain:
    """One hidden layer with as many parameters as host and seed have together, from step 1."""
    return Plain(data, data.host(seed, data.width_of(size_of(joined(data, seed)))))


def same_from_start(data: Examples, seed: int, graft_at: int) -> Plain:
    """Host and seed trained together from step 1."""
    return Plain(data, joined(data, seed))


def joined(data: Examples, seed: int) -> nn.Sequential:
    """The host with a seed's module added to its first layer, nothing between."""
    host = data.host(seed)
    shapes = torch.Size((1, data.num_inputs)), torch.Size((1, data.task.hidden))
    module = BLUEPRINTS["mlp"].build(host[0], *shapes, {"hidden": data.task.seed_hidden})
    host[0].add_module("seed", module)
    host[0].register_forward_hook(lambda layer, args, h: h + layer.seed(args[0], h))
    return host


class Frozen(Plain):
    """As adapters are trained: the host alone first, then frozen, and the new module alone."""

    def __init__(self, data: Examples, seed: int, graft_at: int) -> None:
        super().__init__(data, joined(data, seed))
        self.added, self.graft_at = list(self.model.get_submodule("hidden.seed").parameters()), graft_at
        for parameter in self.added:
            parameter.requires_grad_(False)

    def at(self, step: int) -> None:
        if step == self.graft_at:
            for parameter in self.model.parameters():
                parameter.requires_grad_(False)
            for parameter in self.added:
                parameter.requires_grad_(True)


class Gromo(Plain):
    """Its GrowingMLP, widened by its own rule (TINY) at `GROWTHS` points to the width of `final_size`."""

    def __init__(self, data: Examples, seed: int, graft_at: int) -> None:
        torch.manual_seed(seed)
        model = import_module("gromo.containers.growing_mlp").GrowingMLP(
            data.num_inputs, data.num_classes, data.task.hidden, 1, activation=nn.ReLU(), device=torch.device("cpu")
        )
        super().__init__(data, model)
        self.growing: Any = model
        self.width = data.width_of(size_of(joined(data, seed)))
        self.seed, self.points = seed, [graft_at * (2 + at) // 2 for at in range(GROWTHS)]

    def at(self, step: int) -> None:
        missing = self.width - self.growing.layers[0].out_features
        if step in self.points and missing > 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of its pseudo-inverses
                self._grow(missing)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE)

    def _grow(self, missing: int) -> None:
        """As its documentation does it: statistics, updates, the best step of a few on training data, applied."""
        inputs, targets = self.data.train
        self.growing.init_computation()
        for x, y in zip(torch.split(inputs, 128), torch.split(targets, 128), strict=True):
            self.growing.zero_grad()
            torch.autograd.backward(functional.cross_entropy(self.growing(x), y, reduction="sum"))
            self.growing.update_computation()
        self.growing.compute_optimal_updates(maximum_added_neurons=missing)
        self.growing.reset_computation()
        self.growing.select_best_update()
        with torch.no_grad():
            losses = {factor: self._scaled(factor, inputs, targets) for factor in (0.1, 0.25, 0.5, 1.0)}
        self.growing.set_scaling_factor(min(losses, key=lambda factor: losses[factor]))
        self.growing.apply_change()
        self.growing.zero_grad()

    def _scaled(self, factor: float, inputs: Tensor, targets: Tensor) -> float:
        self.growing.set_scaling_factor(factor)
        return float(functional.cross_entropy(self.growing.extended_forward(inputs), targets))


Grower = Callable[[Examples, int, int], Plain]
