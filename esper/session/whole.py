"""Refuses a model of which no rank holds the parameters whole."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from esper.errors import SettingError

EXPECTED = (
    "parameters that every rank holds whole, as on one device or under DistributedDataParallel: digests, snapshots and"
    " fossils are of whole tensors (a model that fully_shard or tensor parallelism has split is not supported)"
)


def require_whole(model: nn.Module) -> None:
    """SettingError, naming the first parameter or module, for a model split by FSDP or tensor parallelism."""
    if not dist.is_initialized():  # nothing can have been split
        return
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor):
            where = ", ".join(map(str, parameter.placements))
            raise SettingError(
                "model", f"{name}: a DTensor ({where}) on {parameter.device_mesh.size()} ranks", EXPECTED
            )
    for name, module in model.named_modules():
        if isinstance(module, FullyShardedDataParallel):
            raise SettingError("model", f"{name or 'the model'}: FullyShardedDataParallel", EXPECTED)
