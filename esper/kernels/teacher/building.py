"""A teacher's architecture, made by the user's own code; without memory and time for weights where it allows that."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from esper.errors import SettingError, first_line

# What the user's architecture raises where the sample, or a tensor of the file, is not what it takes.
FAULTS = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class Architecture(Protocol):
    """Whatever names a factory, such as a TeacherSource."""

    @property
    def factory(self) -> Callable[[], nn.Module]: ...


def create_teacher_model(config: Architecture) -> nn.Module:
    """By the user's code, weights as it draws them; the run then draws the numbers that it would have drawn.

    Raises SettingError, with what the factory raised, where it fails.
    """
    with torch.random.fork_rng(devices=_cuda_in_use()):
        try:
            return config.factory()
        except FAULTS as error:
            raise SettingError("teacher's factory", type(error).__name__, f"a model: {first_line(error)}") from error


def outline(config: Architecture) -> nn.Module:
    """The same with its parameters on the meta device, where nothing else of it needs to be there: they are the file's.

    A factory that reads its tensors, or keeps others than parameters and buffers of its state_dict, is called once
    more, and makes the whole model. Raises SettingError as `create_teacher_model` does.
    """
    watch = _Watch()
    try:
        with torch.random.fork_rng(devices=_cuda_in_use()), torch.device("meta"), watch:
            model = config.factory()
    except FAULTS:
        return create_teacher_model(config)
    held = {id(parameter) for parameter in model.parameters()}
    held |= {id(each) for each in model.state_dict(keep_vars=True).values()}
    return (
        model
        if all(id(tensor) in held for tensor in (*watch.alive(), *_on_meta(model.buffers())))
        else (create_teacher_model(config))
    )


class _Watch(TorchFunctionMode):
    """Remembers the tensors on the meta device that were made, and are still held by somebody."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[weakref.ref[Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        several = made if isinstance(made, tuple | list) else (made,)
        self._made += [weakref.ref(each) for each in several if isinstance(each, Tensor) and each.is_meta]
        return made

    def alive(self) -> list[Tensor]:
        return [tensor for each in self._made if (tensor := each()) is not None]


def _on_meta(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor.is_meta]


def _cuda_in_use() -> list[int]:
    in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return list(range(torch.cuda.device_count())) if in_use else []
