"""How a model falls into parts: units that are called one after another, and the trunk that most of it lies in."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

Container = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def units(model: nn.Module) -> list[nn.Module]:
    """Disjoint submodules with parameters that run as a whole: the blocks of a trunk, and what stands beside it.

    A module that holds a list of others is taken apart; one that doesn't is left whole, since it may use the weights of
    its children without calling them, as nn.MultiheadAttention does.
    """
    return [unit for unit in _parts(model) if next(unit.parameters(), None) is not None]


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, Container) or any(isinstance(each, Container) for each in child.modules()):
            yield from _parts(child)
        else:
            yield child


def trunk(model: nn.Module) -> nn.Sequential | nn.ModuleList | None:
    """The sequence of at least two blocks that holds most parameters; None where no sequence holds half of them."""
    sequences = [m for m in model.modules() if isinstance(m, nn.Sequential | nn.ModuleList) and len(m) > 1]
    largest = max(sequences, key=num_parameters, default=None)
    return largest if largest is not None and 2 * num_parameters(largest) >= num_parameters(model) else None


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
