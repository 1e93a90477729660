"""Finds what a seed's code hung on the host: hooks on its modules and on their parameters."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from esper.kasmina.slots.walking import walked

_of_module = attrgetter("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_of_tensor = attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")

Table: TypeAlias = MutableMapping[int, Any]


class HookCensus:
    """The hooks of a module's subtree when it was made, those of this package apart: they are taken off elsewhere."""

    def __init__(self, root: nn.Module) -> None:
        self._root = root
        self._before = {id(hook) for _, _, hook in _others_hooks(root)}

    def added(self) -> int:
        return sum(id(hook) not in self._before for _, _, hook in _others_hooks(self._root))


class NewHooks:
    """Hooks that are hung on a module's subtree from now on. It looks for them only where torch has given a handle out
    since: going through a host stands in the way of a graft."""

    def __init__(self, root: nn.Module) -> None:
        self._root, self._first = root, RemovableHandle.next_id

    def remove(self) -> int:
        """Take them off, and say how many they were."""
        if RemovableHandle.next_id == self._first:
            return 0
        added = [(table, key) for table, key, _ in _others_hooks(self._root) if key >= self._first]
        for table, key in added:
            del table[key]
        return len(added)


def _others_hooks(root: nn.Module) -> Iterator[tuple[Table, int, Any]]:
    for table in _tables(root):
        yield from ((table, key, hook) for key, hook in table.items() if not _ours(hook))


def _tables(root: nn.Module) -> Iterator[Table]:
    """Those in which there is a hook."""
    modules = [module for _, module in walked(root)]
    owned = (parameter for module in modules for parameter in module._parameters.values() if parameter is not None)
    parameters = {id(parameter): parameter for parameter in owned}.values()  # one may be several modules'
    return filter(None, chain(*map(_of_module, modules), *map(_of_tensor, parameters)))


def _ours(hook: object) -> bool:
    origin = getattr(hook, "__module__", None) or type(hook).__module__
    return origin.startswith("esper.")


class UnfreedMemory:
    """Notes a module's tensors without holding them, to tell later what of their memory was not given back."""

    def __init__(self, module: nn.Module | None) -> None:
        tables = [] if module is None else [(each._parameters, each._buffers) for _, each in walked(module)]
        tensors = (tensor for pair in tables for table in pair for tensor in table.values() if tensor is not None)
        self._tensors = [weakref.ref(tensor) for tensor in {id(tensor): tensor for tensor in tensors}.values()]

    def bytes_held(self) -> int:
        held: list[Tensor] = [tensor for each in self._tensors if (tensor := each()) is not None]
        return sum(tensor.numel() * tensor.element_size() for tensor in held)
