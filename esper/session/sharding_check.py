"""Refuses a model that some ranks share, or none holds whole or at all, and an optimizer that none holds whole."""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from esper.errors import SettingError
from esper.kasmina.gates.ablation import Holdout
from esper.kasmina.slots.naming import distribution
from esper.kernels.split import has_split, is_split
from esper.tolaria.reduce import SeedReducer
from esper.tolaria.state.sharded import parameters

EXPECTED = (
    "parameters that every rank holds whole, as on one device or under DistributedDataParallel, or that fully_shard has"
    " split over all ranks (FullyShardedDataParallel and tensor parallelism are not supported)"
)
EXPECTED_VALUES = (
    "a tensor with values: build the model on a real device, or give it to_empty() and its weights before attach(); one"
    " that is offloaded between its calls is not supported"
)
EXPECTED_STATE = (
    "an optimizer whose state every rank holds whole: snapshots and checkpoints are each rank's own, and would lack the"
    " moments that others hold"
)
EXPECTED_ONE_STATE = (
    "one that keeps its state in the optimizer below it, as accelerate's does: snapshots, checkpoints and fossils are"
    " of that one, and would lack what is kept around it"
)


def require_values(model: nn.Module) -> None:
    """SettingError, naming the first of them, for a parameter or buffer on the meta device."""
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if tensor.is_meta:
            raise SettingError("model", f"{name}: on the meta device", EXPECTED_VALUES)


def require_every_rank(model: nn.Module) -> None:
    """SettingError for a model whose gradients some of the ranks share alone: the others train another one."""
    ddp = distribution(model)
    if ddp is not None and (num := dist.get_world_size(ddp.process_group)) != dist.get_world_size():
        value = f"DistributedDataParallel among {num} of {dist.get_world_size()} ranks"
        raise SettingError("model", value, "one that all ranks share; a run is one model, in one process group")


def require_whole(model: nn.Module) -> None:
    """SettingError, naming the first parameter or module, for a model split by other means than fully_shard."""
    if not dist.is_initialized():  # nothing can have been split
        return
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    split: dict[str, Any] = {name: each for name, each in parameters(model).items() if is_split(each)}
    modules: dict[str, Any] = dict(model.named_modules())
    for name, module in modules.items():
        if isinstance(module, FullyShardedDataParallel):
            raise SettingError("model", f"{name or 'the model'}: FullyShardedDataParallel", EXPECTED)
    shards = [name for name, module in modules.items() if isinstance(module, FSDPModule)]
    sharded = {id(each) for name in shards for each in modules[name].parameters()}
    for name, parameter in split.items():
        if id(parameter) not in sharded or not _over_all_ranks(parameter):
            where = ", ".join(map(str, parameter.placements))
            raise SettingError(
                "model", f"{name}: a DTensor ({where}) on {parameter.device_mesh.size()} ranks", EXPECTED
            )


def require_equal_holdouts(model: nn.Module, holdout: Holdout | None, reducer: SeedReducer) -> None:
    """SettingError where ranks that hold a model together have other numbers of held-out batches: a forward of it is
    one of all of them. All ranks call it."""
    if reducer.world_size == 1 or not has_split(model):
        return
    num = 0 if holdout is None else len(holdout.batches)
    mean, square = reducer.mean(torch.tensor([float(num), float(num * num)])).tolist()
    if square != mean * mean:
        expected = f"as many on every rank, {mean:g} on average here: fully_shard has split the model over all of them"
        raise SettingError("number of holdout's batches", num, expected)


def _over_all_ranks(parameter: Any) -> bool:
    """As fully_shard splits one: along one dimension of a mesh, and the same along others, if it has any."""
    num_split = sum(not each.is_replicate() for each in parameter.placements)
    return num_split == 1 and parameter.device_mesh.size() == dist.get_world_size()


def require_whole_state(optimizer: torch.optim.Optimizer) -> None:
    """SettingError for ZeRO's: a rank steps its share of the parameters, by an optimizer that no hook of ours is on."""
    module = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")  # who has one has imported that
    if module is not None and isinstance(optimizer, module.ZeroRedundancyOptimizer):
        raise SettingError("optimizer", type(optimizer).__name__, EXPECTED_STATE)


def require_one_state(optimizer: Any) -> None:
    """SettingError for one around another that has a state of its own, as Lookahead's slow weights."""
    inner = getattr(optimizer, "optimizer", None)
    if not isinstance(inner, torch.optim.Optimizer):
        return
    if getattr(optimizer, "state", inner.state) is not inner.state and optimizer.state:
        raise SettingError("optimizer", f"{type(optimizer).__name__} around {type(inner).__name__}", EXPECTED_ONE_STATE)
    require_one_state(inner)
