"""Tensors of a model that have their shape, as those of a lazy module have once it is called."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import torch
from torch.nn.parameter import is_lazy

T = TypeVar("T", bound=torch.Tensor)


def shaped(named: Iterable[tuple[str, T]]) -> dict[str, T]:
    """By name: the others hold nothing that could be copied, compared or digested."""
    return {name: tensor for name, tensor in named if not is_lazy(tensor)}
