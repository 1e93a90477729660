"""Finds what a seed's code hung on the host: hooks on its modules and on their parameters."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any, TypeAlias

from torch import Tensor, nn

OF_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")


Table: TypeAlias = MutableMapping[int, Any]


class HookCensus:
    """The hooks of a module's subtree when it was made, those of this package apart: they are taken off elsewhere."""

    def __init__(self, root: nn.Module) -> None:
        self._root = root
        self._before = {id(hook) for _, _, hook in self._hooks()}

    def added(self) -> int:
        return sum(id(hook) not in self._before for _, _, hook in self._hooks())

    def remove_added(self) -> int:
        """Take off what was added since, and say how many they were."""
        added = [(table, key) for table, key, hook in self._hooks() if id(hook) not in self._before]
        for table, key in added:
            del table[key]
        return len(added)

    def _hooks(self) -> Iterator[tuple[Table, int, Any]]:
        for table in _tables(self._root):
            yield from ((table, key, hook) for key, hook in table.items() if not _ours(hook))


def _tables(root: nn.Module) -> Iterator[Table]:
    """Those in which there is a hook. In one pass over the modules: it stands in the way of a graft."""
    met: set[int] = set()  # parameters: one may be several modules'
    for module in root.modules():
        yield from (table for name in OF_MODULES if (table := getattr(module, name, None)))
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) not in met:
                met.add(id(parameter))
                yield from (table for name in OF_TENSORS if (table := getattr(parameter, name, None)))


def _ours(hook: object) -> bool:
    origin = getattr(hook, "__module__", None) or type(hook).__module__
    return origin.startswith("esper.")


class Remains:
    """Notes a module's tensors without holding them, to tell later what of their memory was not given back."""

    def __init__(self, module: nn.Module | None) -> None:
        tensors = () if module is None else (*module.parameters(), *module.buffers())
        self._tensors = [weakref.ref(tensor) for tensor in tensors]

    def bytes_held(self) -> int:
        held: list[Tensor] = [tensor for each in self._tensors if (tensor := each()) is not None]
        return sum(tensor.numel() * tensor.element_size() for tensor in held)
