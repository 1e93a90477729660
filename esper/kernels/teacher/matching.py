"""Which tensor of a file belongs to which parameter or buffer of a model."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from esper.errors import SettingError


class Weights(Protocol):
    """Tensors by name, as the model's state_dict names them."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...
    def read(self, name: str) -> Tensor: ...


class Held:
    """The tensors of a model itself, for a teacher that comes without a file."""

    def __init__(self, model: nn.Module) -> None:
        self._tensors = {name: tensor.detach() for name, tensor in _tensors(model)}
        self.shapes: Mapping[str, tuple[int, ...]] = {name: tuple(t.shape) for name, t in self._tensors.items()}

    def read(self, name: str) -> Tensor:
        return self._tensors[name]


@dataclass(frozen=True, eq=False)
class Place:
    """One name in one module that holds a parameter. Tied parameters have several places and one `source`."""

    module: nn.Module
    name: str
    source: str  # the tensor's name in the file
    dtype: torch.dtype
    tied: bool


def places(model: nn.Module, weights: Weights) -> list[Place]:
    """Every parameter of `model` with its tensor. Raises SettingError unless names, shapes and kinds agree."""
    tensors = dict(_tensors(model))
    for name in weights.shapes:
        if name not in tensors:
            raise SettingError("teacher's tensor", name, f"one that its model has; near: {_near(name, tensors)}")
    sources = _sources(tensors, weights)
    found = []
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            source = sources[id(parameter)]
            tied = _ties(tensors, parameter) > 1
            found.append(Place(module, name, source, parameter.dtype, tied))
    return found


def load_buffers(model: nn.Module, weights: Weights, device: torch.device) -> None:
    """Copy the buffers that the file holds and put all on the device; they are small in every mode."""
    for path, module in model.named_modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            full = f"{path}.{name}" if path else name
            value = weights.read(full) if full in weights.shapes else buffer
            if value.is_meta:
                raise SettingError("teacher's buffer", full, "one that is in the file, or made by its factory")
            module._buffers[name] = value.to(device, buffer.dtype, copy=True)


def _sources(tensors: Mapping[str, Tensor], weights: Weights) -> dict[int, str]:
    """By identity of the parameter or buffer: a file may hold one of tied tensors only, under any of their names."""
    names: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        names.setdefault(id(tensor), []).append(name)
    sources = {}
    for number, tied in names.items():
        source = next((name for name in tied if name in weights.shapes), None)
        if source is None:
            near = _near(tied[0], weights.shapes)
            raise SettingError("teacher file", f"without {tied[0]}", f"every tensor of its model; near: {near}")
        for name in tied:
            if name in weights.shapes:
                _require_alike(name, tensors[name], weights)
        sources[number] = source
    return sources


def _require_alike(name: str, wanted: Tensor, weights: Weights) -> None:
    if weights.shapes[name] != tuple(wanted.shape):
        shape = weights.shapes[name]
        raise SettingError(f"shape of the teacher's {name!r}", shape, f"{tuple(wanted.shape)}, as its model has it")
    kind = weights.read(name).dtype
    if kind != wanted.dtype and not (kind.is_floating_point and wanted.is_floating_point()):
        raise SettingError(f"dtype of the teacher's {name!r}", str(kind), f"{wanted.dtype}, as its model has it")


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Of the state_dict, as the objects that the modules hold. Extra state is not a tensor, and not loaded."""
    state = model.state_dict(keep_vars=True)
    return ((name, tensor) for name, tensor in state.items() if isinstance(tensor, Tensor))


def _ties(tensors: Mapping[str, Tensor], parameter: nn.Parameter) -> int:
    return sum(each is parameter for each in tensors.values())


def _near(name: str, known: Iterable[str]) -> str:
    names = list(known)
    return ", ".join(difflib.get_close_matches(name, names, 3, 0.3) or sorted(names)[:3]) or "none"
