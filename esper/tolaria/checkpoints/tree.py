"""Nested state as a tree of JSON with its tensors beside it, and back. Nothing in a tree names code."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from esper.errors import CheckpointError, SettingError
from esper.tolaria.checkpoints.wrapped import join, take_apart

_PLAIN = (str, bool, int)
_TAGS = ("$tensor", "$float", "$bytes", "$tuple", "$map", "$counter", "$array", "$wrapped")


def pack(state: Any) -> tuple[Any, bytes]:
    """(tree, safetensors bytes). Raises SettingError, with the place, for anything but data.

    Data are None, str, bool, int, float, bytes, lists, tuples, dicts and counters with keys that are data, numpy arrays
    and tensors, dense ones or sparse ones of coordinates.
    """
    packer = _Packer()
    tree = packer.tree(state, "")
    return tree, save(packer.tensors)


def unpack(tree: Any, blob: bytes) -> Any:
    """What was packed; tensors lie on the CPU, with the strides that they had."""
    try:
        return _unpacked(tree, load(blob))
    except SafetensorError as error:
        raise CheckpointError(f"its tensors are not safetensors: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, RecursionError) as error:
        raise CheckpointError(f"its state is not one that was packed: {error!r}") from error


class _Packer:
    """Collects tensors under the names of the places where they were met."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._storages: set[int] = set()

    def tree(self, value: Any, at: str) -> Any:
        if value is None or type(value) in _PLAIN:
            return value
        if isinstance(value, _PLAIN):  # numbers of protobuf and numpy's str: their plain value is all there is to them
            return next(kind(value) for kind in (str, int) if isinstance(value, kind))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"$float": float(value).hex()}
        if isinstance(value, bytes):
            return {"$bytes": value.hex()}
        if isinstance(value, torch.Tensor):
            taken = take_apart(value)
            return self._tensor(value, at) if taken is None else {"$wrapped": self.tree(taken, at)}
        if isinstance(value, np.ndarray | np.generic):
            return {"$array": self.tree(torch.from_numpy(np.array(value)), at)}
        return self._container(value, at)

    def _container(self, value: Any, at: str) -> Any:
        if type(value) in (dict, OrderedDict):
            if all(type(key) is str for key in value) and not any(tag in value for tag in _TAGS):
                return {key: self.tree(each, f"{at}/{key}") for key, each in value.items()}
            return {"$map": [[self.tree(key, at), self.tree(each, f"{at}/{key}")] for key, each in value.items()]}
        if type(value) is Counter:  # as MultiStepLR has its milestones
            return {"$counter": self.tree(dict(value), at)}
        if type(value) in (list, tuple):
            items = [self.tree(each, f"{at}/{i}") for i, each in enumerate(value)]
            return items if type(value) is list else {"$tuple": items}
        raise SettingError(f"state at {at or '/'}", type(value).__name__, "numbers, text, tensors, lists and dicts")

    def _tensor(self, value: torch.Tensor, at: str) -> Any:
        if value.layout is not torch.strided or value.is_quantized or type(value) not in _DENSE:
            raise SettingError(f"state at {at}", f"{type(value).__name__} ({value.layout})", "a dense tensor")
        name = at
        while name in self.tensors:
            name += "+"
        self.tensors[name] = self._own(value.detach())
        return {"$tensor": name} | ({} if value.is_contiguous() else _strides(value))

    def _own(self, value: torch.Tensor) -> torch.Tensor:
        """Contiguous on the CPU, alone in its storage: the library refuses tensors that share one."""
        flat = value.cpu().contiguous()
        storage = flat.untyped_storage().data_ptr()
        if storage in self._storages or flat.numel() * flat.element_size() != flat.untyped_storage().nbytes():
            flat = flat.clone()
        self._storages.add(flat.untyped_storage().data_ptr())
        return flat


def _strides(value: torch.Tensor) -> dict[str, list[int]]:
    """Of a permuted layout such as channels last; a view with gaps or overlaps comes back contiguous."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return {"strides": list(value.stride())} if extent == value.numel() else {}


_DENSE = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def _unpacked(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(tree, list):
        return [_unpacked(each, tensors) for each in tree]
    if not isinstance(tree, dict):
        return tree
    match tree:
        case {"$tensor": name}:
            return _strided(tensors[name], tree.get("strides"))
        case {"$float": text}:
            return float.fromhex(text)
        case {"$bytes": text}:
            return bytes.fromhex(text)
        case {"$tuple": items}:
            return tuple(_unpacked(each, tensors) for each in items)
        case {"$map": pairs}:
            return {_unpacked(key, tensors): _unpacked(each, tensors) for key, each in pairs}
        case {"$counter": packed}:
            return Counter(_unpacked(packed, tensors))
        case {"$wrapped": packed}:
            return join(_unpacked(packed, tensors))
        case {"$array": packed}:
            return _unpacked(packed, tensors).numpy()
    return {key: _unpacked(each, tensors) for key, each in tree.items()}


def _strided(value: torch.Tensor, strides: list[int] | None) -> torch.Tensor:
    return value if strides is None else torch.empty_strided(value.shape, strides, dtype=value.dtype).copy_(value)
