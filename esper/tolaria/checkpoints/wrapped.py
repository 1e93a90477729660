"""State of 8-bit optimizers and of sparse gradients: tensors that consist of tensors, by a fixed table of kinds."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from esper.errors import CheckpointError

# The only classes that a checkpoint may ask for, and where each lives.
HOMES = {"OptimState8bit": "torchao.optim.subclass_8bit"}
SPARSE = "sparse"  # what momentum is, where gradients are
DTYPES = {str(dtype): dtype for dtype in (torch.float32, torch.float16, torch.bfloat16)}


def take_apart(value: torch.Tensor) -> dict[str, Any] | None:
    """Name of the class, inner tensors and what else it takes; None for a plain tensor and for a class unknown here."""
    if type(value) is torch.Tensor and value.is_sparse:
        parts = {"indices": value._indices(), "values": value._values()}
        return {"class": SPARSE, "parts": parts, "rest": [value.is_coalesced()], "shape": [*value.shape]}
    name = type(value).__name__
    if not is_traceable_wrapper_subclass(value) or type(value).__module__ != HOMES.get(name):
        return None
    inner, rest = value.__tensor_flatten__()
    plain = [str(each) if isinstance(each, torch.dtype) else each for each in rest]
    return {
        "class": name,
        "parts": {each: getattr(value, each) for each in inner},
        "rest": plain,
        "shape": [*value.shape],
    }


def join(taken: dict[str, Any]) -> torch.Tensor:
    """The inverse; CheckpointError where its library is missing, or for another class."""
    name, shape = taken["class"], torch.Size(taken["shape"])
    if name == SPARSE:
        indices, values = taken["parts"]["indices"], taken["parts"]["values"]
        return torch.sparse_coo_tensor(indices, values, shape, is_coalesced=taken["rest"][0], check_invariants=True)
    if name not in HOMES:
        raise CheckpointError(f"its state holds a {name}; known: {', '.join(HOMES)}")
    try:
        home = getattr(import_module(HOMES[name]), name)
    except ImportError as error:
        raise CheckpointError(f"its state holds a {name}, which needs {HOMES[name].split('.')[0]}") from error
    rest = [DTYPES[each] if isinstance(each, str) else each for each in taken["rest"]]
    strides = torch.empty(shape, device="meta").stride()
    made: torch.Tensor = home.__tensor_unflatten__(taken["parts"], rest, shape, strides)
    return made
