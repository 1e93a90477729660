"""What this rank holds of the tensors that fully_shard has split over all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

_TENSORS, _SHARDS = "torch.distributed.tensor", "torch.distributed.fsdp"  # who has split something has imported both


def is_split(tensor: object) -> bool:
    """Whether it is a DTensor."""
    module = sys.modules.get(_TENSORS)
    return module is not None and isinstance(tensor, module.DTensor)


def own_part(tensor: Tensor) -> Tensor:
    """This rank's elements, in the memory that they lie in; of a tensor that every rank holds whole all of them."""
    if not is_split(tensor):
        return tensor
    split: Any = tensor
    with torch.no_grad():  # else it would be a view, in which torchao's state has a table of its own
        part: Tensor = split.to_local()
    return part.detach() if part.requires_grad else part


def placed(tensor: Tensor, like: Tensor) -> Tensor:
    """This rank's part, as one of a tensor that is split as `like` is; beside a whole one the tensor itself."""
    if not is_split(like):
        return tensor
    split, module = cast(Any, like), sys.modules[_TENSORS]
    made: Tensor = module.DTensor.from_local(
        tensor, split.device_mesh, split.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    return made


@contextmanager
def gathered(module: nn.Module) -> Iterator[nn.Module]:
    """The same module with whole weights of its own; what they are in the end, its parts are. All ranks do it.

    A module of which nothing is split is given as it is.
    """
    split: dict[str, Any] = {name: each for name, each in module._parameters.items() if is_split(each)}
    if not split:
        yield module
        return
    kind: Any = next(each for each in type(module).__mro__ if not issubclass(each, sys.modules[_SHARDS].FSDPModule))
    whole: nn.Module = kind.__new__(kind)
    whole.__dict__ |= module.__dict__
    with torch.no_grad():
        full = {name: nn.Parameter(each.full_tensor()) for name, each in split.items()}
        whole._parameters = {**module._parameters, **full}
        yield whole
        for name, each in split.items():
            own_part(each).copy_(_part_of(full[name].detach(), each))


def _part_of(whole: Tensor, like: Tensor) -> Tensor:
    """What this rank holds of it."""
    split = cast(Any, like)
    distribute = sys.modules[_TENSORS].distribute_tensor
    return own_part(distribute(whole, split.device_mesh, split.placements, src_data_rank=None))


def with_norm(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of which this rank holds all, with the norm that the given ones have on all ranks together.

    The split ones become one number, which all ranks sum up.
    """
    split: list[Any] = [each for each in gradients if type(each) is not Tensor and is_split(each)]
    if not split:
        return [*gradients]
    rest = [each for each in gradients if not is_split(each)]
    total: Any = get_total_norm(split)
    return [total.full_tensor().reshape(1), *rest]


def reshard(model: nn.Module) -> None:
    """Have a model hold its split parameters: behind a forward without a backward it still holds gathered ones."""
    module = sys.modules.get(_SHARDS)
    if module is None or not module.FSDPModule.__subclasses__():  # nothing was ever split: a walk costs more
        return
    for each in model.modules():
        if isinstance(each, module.FSDPModule):
            each.reshard()


def gathers(hook: object) -> bool:
    """Whether it is one of fully_shard's own, which changes no output."""
    return str(getattr(hook, "__module__", "")).startswith(_SHARDS)


def has_split(model: nn.Module) -> bool:
    """Whether the ranks hold this model together."""
    reshard(model)
    return any(map(is_split, chain(model.parameters(), model.buffers())))
