"""Tensors of a model that can be copied, compared and digested: what this rank holds of those that have their shape."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn.parameter import is_lazy

from esper.kernels.split import is_split, own_part, reshard

Named = Mapping[str, torch.Tensor]


def parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """By name, as the optimizer knows them."""
    reshard(model)
    return dict(model.named_parameters())


def shaped(named: Named) -> dict[str, torch.Tensor]:
    """By name: those of a module that is yet to be called, as a lazy one, hold nothing. Of split ones this rank's part.

    Those that every rank holds whole come first.
    """
    filled = [(name, tensor) for name, tensor in named.items() if not is_lazy(tensor)]
    return {name: own_part(tensor) for name, tensor in sorted(filled, key=lambda pair: is_split(pair[1]))}


def whole(named: Named) -> dict[str, torch.Tensor]:
    """By name, those with a shape that every rank holds whole: what ranks can compare."""
    return {name: tensor for name, tensor in named.items() if not (is_lazy(tensor) or is_split(tensor))}


def parts(named: Named) -> dict[str, torch.Tensor]:
    """By name, this rank's own of those that are split: no other rank has the same."""
    return {name: own_part(tensor) for name, tensor in named.items() if is_split(tensor)}
