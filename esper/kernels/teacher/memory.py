"""Bytes that tensors hold, and how an allocator says that it has no more."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

CPU_ALLOCATOR = "DefaultCPUAllocator"  # which has no exception type of its own


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and CPU_ALLOCATOR in str(error)
    )


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Of the distinct storages, those on the meta device aside. A quantised tensor counts as what it is made of."""
    held: dict[int, int] = {}
    for tensor in tensors:
        for part in _parts(tensor):
            if part.device.type != "meta":
                storage = part.untyped_storage()
                held[storage.data_ptr()] = storage.nbytes()
    return sum(held.values())


def _parts(tensor: Tensor) -> list[Tensor]:
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [part for name in names for part in _parts(getattr(tensor, name))]
