"""Weighs what a blueprint would build, before memory is taken for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from esper.kasmina.isolation.foreign_code import BlueprintFault, guarded

FILLS = {
    *(nn.init.uniform_, nn.init.normal_, nn.init.constant_, nn.init.kaiming_uniform_),
    *(torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.fill_, torch.Tensor.zero_),
}


class Unfilled(TorchFunctionMode):
    """Leaves out what fills a tensor on the meta device: there is nothing to fill, and torch takes its time over it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func in FILLS and (filled := args[0] if args else given["tensor"]).is_meta:
            return filled
        return func(*args, **given)


def weighed(build: Callable[[], nn.Module], dtype: torch.dtype) -> int:
    """Bytes that its parameters would take; 0 where it can't be built on the meta device, and G0 weighs it."""
    with torch.device("meta"), Unfilled():
        made = guarded(build)
    if isinstance(made, BlueprintFault):
        return 0
    return sum(p.numel() for p in made.parameters() if not is_lazy(p)) * dtype.itemsize
