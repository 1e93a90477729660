"""The tensor of a site's output that a seed joins, and the output with another one in its place."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

JOINABLE = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
NARROW = frozenset((torch.float16, torch.bfloat16))

Path = tuple[Any, ...]  # keys, indexes and field names, outermost first


def joinable(value: object) -> tuple[Path, Tensor] | None:
    """The first dense floating tensor with dimensions, depth first, and where it stands; None where there is none.

    A scalar is passed over: in the output of a model that was given labels it is the loss, and no activation. Looked
    into are tuples, lists, mappings and dataclasses, and what derives from them: NamedTuple, ModelOutput.
    """
    if isinstance(value, Tensor):
        return ((), value) if is_joinable(value) else None
    for key, entry in entries_of(value):
        if (found := joinable(entry)) is not None:
            return (key, *found[0]), found[1]
    return None


def tensors_in(value: object) -> Iterator[Tensor]:
    """All of them, depth first, out of the same containers."""
    if isinstance(value, Tensor):
        yield value
    for _, entry in () if isinstance(value, Tensor) else entries_of(value):
        yield from tensors_in(entry)


def is_joinable(tensor: Tensor) -> bool:
    """Whether a delta can be added to it: neither nested nor sparse, and no float8, which torch adds to nothing."""
    is_dense = tensor.layout is torch.strided and not tensor.is_nested
    return tensor.dtype in JOINABLE and is_dense and tensor.ndim > 0


def dtype_of(module: nn.Module) -> torch.dtype | None:
    """That of its first floating parameter."""
    for each in module.modules():
        for parameter in each._parameters.values():  # parameters() takes 8 us to its first one, of a graft's 40
            if parameter is not None and parameter.is_floating_point():
                return parameter.dtype
    return None


def widened(module: nn.Module, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """What is narrow of both in the precision of a seed's parameters, where the host alone computes so.

    fully_shard's MixedPrecisionPolicy narrows what it gathers, and no seed; autocast narrows seeds, too.
    """
    dtype = dtype_of(module) if x.dtype in NARROW or h.dtype in NARROW else None
    if dtype is None or dtype in NARROW or torch.is_autocast_enabled(h.device.type):
        return x, h
    return x.to(dtype) if x.dtype in NARROW else x, h.to(dtype) if h.dtype in NARROW else h


def with_tensor(output: Any, path: Path, tensor: Tensor) -> Any:
    """A copy of `output`, of the same type, with `tensor` at `path`; what is not on the path is itself."""
    if not path:
        return tensor
    key, *below = path
    entry = dict(entries_of(output))[key]
    return with_entry(output, key, with_tensor(entry, tuple(below), tensor))


def entries_of(value: object) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, tuple | list):
        return enumerate(value)
    if is_dataclass(value) and not isinstance(value, type):
        return ((each.name, getattr(value, each.name)) for each in fields(value))
    return ()


def with_entry(output: Any, key: Any, value: Any) -> Any:
    if is_dataclass(output):  # a ModelOutput too, which is a mapping besides
        return with_field(output, key, value)
    if isinstance(output, Mapping):
        return with_item(output, key, value)
    entries = [*output]
    entries[key] = value
    return type(output)(*entries) if hasattr(output, "_fields") else type(output)(entries)


def with_field(output: Any, name: str, value: Any) -> Any:
    if all(each.init for each in fields(output)):
        return replace(output, **{name: value})
    changed = copy.copy(output)
    object.__setattr__(changed, name, value)  # also where it is frozen
    return changed


def with_item(output: Any, key: Any, value: Any) -> Any:
    if type(output) in (dict, OrderedDict):  # the way that compiled code understands
        return type(output)({**output, key: value})
    changed = copy.copy(output)
    changed[key] = value
    return changed
