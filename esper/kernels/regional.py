"""Compiles seeds by region: one graph for each structure, shared by all seeds that are built alike."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from importlib import import_module
from types import FunctionType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch._dynamo.symbolic_convert import InstructionTranslator

from esper.errors import SettingError

Forward: TypeAlias = Callable[[nn.Module, Tensor, Tensor], Tensor]
Structure: TypeAlias = Hashable

_symbols: Any = import_module("torch.fx.experimental._config")  # its `patch` is made at run time


def structure_of(module: nn.Module) -> Structure:
    """What compiled code of a module depends on: its classes, and names, shapes, dtypes and devices of its tensors."""
    kinds = tuple((name, type(each)) for name, each in module.named_modules())
    tensors = (*module.named_parameters(), *module.named_buffers())
    return kinds, tuple((name, tensor.shape, tensor.dtype, tensor.device) for name, tensor in tensors)


class Regions:
    """Compiled forwards, by structure, with batch sizes left open. Compiles in `warm`, before a step needs it.

    Each structure has a code object of its own: compiled code is kept, and its recompiles are counted, by code object,
    so that many structures under one would exceed the limit and silently run in eager mode.
    """

    def __init__(self, backend: str) -> None:
        known = torch._dynamo.list_backends(exclude_tags=())
        if backend not in known:
            raise SettingError("torch_compile_backend", backend, f"one of {', '.join(known)}")
        self.backend = backend
        self._forwards: dict[Structure, Forward] = {}

    def __len__(self) -> int:
        return len(self._forwards)

    def of(self, module: nn.Module) -> Forward:
        """(module, x, h) -> delta for every module of this one's structure."""
        structure = structure_of(module)
        found = self._forwards.get(structure)
        if found is None:
            found = self._forwards[structure] = self._compiled(len(self._forwards))
        return found

    def warm(self, module: nn.Module, x: Tensor, h: Tensor) -> None:
        """Compile now, forward and backward, with gradients and without. x, h: any batch of at least 2."""
        forward = self.of(module)
        x, h = x.detach().clone(), h.detach().clone()  # no views: code compiled for one asks for its base
        with _symbols.patch(use_duck_shape=False):  # a batch as large as some width must not be taken for it
            with torch.enable_grad():
                parameters = [p for p in module.parameters() if p.requires_grad]
                delta = forward(module, x, h)
                if delta.requires_grad:
                    torch.autograd.grad(delta.sum(), parameters, allow_unused=True)
            with torch.no_grad():
                forward(module, x, h)

    def _compiled(self, number: int) -> Forward:
        code = _forward.__code__.replace(co_name=f"seed_{number}")
        own: Any = FunctionType(code, _forward.__globals__, f"seed_{number}")
        compiled: Forward = torch.compile(own, backend=self.backend, dynamic=True)
        return compiled


def _forward(module: nn.Module, x: Tensor, h: Tensor) -> Tensor:
    delta: Tensor = module(x, h)
    return delta


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def in_one_graph() -> bool:
    """Whether what is being compiled may have no break. Asked while it is traced, where it becomes a constant."""
    # assume_constant_result has it called while the frame is traced, outside of which there is no translator.
    return bool(InstructionTranslator.current_tx().one_graph)
