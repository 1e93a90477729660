"""Verifies at run time that a seed reads only what it is given and writes to nothing of the host's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from operator import attrgetter, is_
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from esper.errors import EsperError
from esper.kasmina.isolation.graph import walk
from esper.kasmina.slots.walking import walked
from esper.kernels.split import is_split, own_part

WATCHED = 96  # tensors of the host whose version counters are read around one call of a seed: 7 us, twice
WALKED_ALWAYS = 64  # nodes; a larger graph of delta's is walked at close looks only
GIVEN = ("its input", "the site's output")

Result = TypeVar("Result")

PLAIN = (Tensor, nn.Parameter)

_version = attrgetter("_version")


class IsolationError(EsperError):
    """A seed was about to write to a tensor of the host."""

    def __init__(self, operation: str, name: str) -> None:
        self.operation, self.name = operation, name
        super().__init__(f"{operation} would write to {name}; a seed may write to its own tensors only")


class HostTensors:
    """The host's parameters and buffers, by name, as they were when it last looked: where nobody asks, it need not."""

    def __init__(self, host: nn.Module) -> None:
        self._host = host
        self._cursor = 0
        self._lapsed = self._is_split = False
        self._find()

    def lapse(self) -> None:
        """They may be others by now: have them found anew before the next use."""
        self._lapsed = True

    def refresh(self) -> None:
        """Find them anew if they lapsed."""
        if self._lapsed:
            self.look()

    def look(self) -> None:
        """Find them anew where one has come, gone or been exchanged: fossils join, a script gives modules others."""
        if not self._are_known():
            self._find()
        self._lapsed = False

    def _are_known(self) -> bool:
        """Whether each module has the very children and tensors that it had: a walk takes four times as long."""
        held = _held_by(self._modules)
        return len(held) == len(self._held) and all(map(is_, held, self._held)) and not self._may_become_known

    def _find(self) -> None:
        walk, found = walked(self._host), dict[int, tuple[str, Tensor]]()
        self._modules = [module for _, module in walk]
        self._held = _held_by(self._modules)
        self._may_become_known = False
        for prefix, module in walk:
            for name, tensor in (*module._parameters.items(), *module._buffers.items()):
                if tensor is None:
                    continue
                if is_lazy(tensor) or tensor.is_inference():
                    self._may_become_known = True
                else:
                    found.setdefault(id(tensor), (prefix + name, tensor))
        self.ids = found.keys()
        self.names, self.tensors = [name for name, _ in found.values()], [tensor for _, tensor in found.values()]
        self._is_split = self._is_split or any(map(is_split, self.tensors))

    def release(self) -> None:
        """Hold none of them: nobody asks any more."""
        self._modules, self._held, self._lapsed = [], [], True
        self.ids, self.names, self.tensors = dict[int, tuple[str, Tensor]]().keys(), [], []

    def watched(self) -> tuple[int, Sequence[Tensor]]:
        """Those to read this time, and where they begin: all of them, or of many a stretch that moves on each time.

        What fully_shard has gathered by now stands in the place of the parts that stood there before.
        """
        self._lapsed = self._lapsed or self._is_split
        self.refresh()
        if len(self.tensors) <= WATCHED:
            return 0, self.tensors
        start = self._cursor if self._cursor < len(self.tensors) else 0
        self._cursor = start + WATCHED
        return start, self.tensors[start : self._cursor]

    def by_address(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for name, tensor in zip(self.names, self.tensors, strict=True):
            if type(tensor) in PLAIN and tensor.layout == torch.strided:  # most are: a set for each takes twice as long
                found[tensor.untyped_storage().data_ptr()] = name
            else:
                found |= dict.fromkeys(addresses(tensor), name)
        found.pop(0, None)  # of what holds no memory yet
        return found


def _held_by(modules: Sequence[nn.Module]) -> list[object]:
    """Children, parameters and buffers, None for one that was taken away."""
    held = list[object]()
    for module in modules:
        for table in (module._modules, module._parameters, module._buffers):
            if table:
                held += table.values()
    return held


class GradientIsolationMonitor:
    """Watches the calls of one seed. Counts nothing and opens no breaker: it says what it found.

    Each eager call compares the version counters of the host's tensors, and of the two tensors given, before and after,
    and walks delta's graph to its leaves. A close look also stops writes to the host's memory before they happen,
    those through `.data` included. It does not see writes through numpy or a foreign pointer, nor what a backward
    function of the seed's own does. A seed that is itself compiled runs in eager mode for a close look.
    """

    def __init__(self, module: nn.Module, host: HostTensors) -> None:
        self.module, self._host = module, host
        host.refresh()
        # A seed that registers a tensor of the host as its own does not own it.
        self._own = {own for p in module.parameters() if (own := id(p)) not in host.ids}
        self._num_nodes = 0

    def run(
        self, call: Callable[[nn.Module, Tensor, Tensor], Result], x: Tensor, h: Tensor, *, closely: bool
    ) -> tuple[Result, str]:
        """(what `call(module, x, h)` gave, what it violated or ""). After a violation the result is not to be used.

        Version counters that the seed moved are put back, since the host's own backward would raise over them; what
        was written stays written.
        """
        start, tensors = self._host.watched()
        if not (h.is_inference() or x.is_inference()):
            tensors = [*tensors, x, h]
        before = list(map(_version, tensors))
        if closely:
            result, refused = self._stopped(call, x, h)
            if refused:
                return result, refused
        else:
            result = call(self.module, x, h)
        if list(map(_version, tensors)) != before:
            names = [*self._host.names[start : start + WATCHED], *GIVEN]
            return result, _put_back(names, tensors, before)
        return result, self._strayed(result, closely) if isinstance(result, Tensor) else ""

    def _stopped(self, call: Callable[[nn.Module, Tensor, Tensor], Result], x: Tensor, h: Tensor) -> tuple[Result, str]:
        guard = WriteGuard(partial(self._protected, x, h))
        # A function that torch.compile first meets below a dispatch mode would run in eager mode for ever.
        with torch.compiler.set_stance("force_eager"), guard:
            return call(self.module, x, h), guard.refused

    def _protected(self, x: Tensor, h: Tensor) -> dict[int, str]:
        given = {address: name for name, tensor in zip(GIVEN, (x, h), strict=True) for address in addresses(tensor)}
        return self._host.by_address() | given

    def _strayed(self, delta: Tensor, closely: bool) -> str:
        if not torch.is_grad_enabled() or (self._num_nodes > WALKED_ALWAYS and not closely):
            return ""
        num_stray, self._num_nodes = walk(delta, self._own)
        return f"delta's graph reaches {num_stray} leaves that are not the seed's own" if num_stray else ""


class WriteGuard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises IsolationError instead of running an operation that writes to protected memory.

    Asks what that is at the first write to anything: most seeds write to nothing.
    """

    def __init__(self, protected: Callable[[], Mapping[int, str]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._protected = cache(protected)
        self.refused = ""  # the seed's code may catch what is raised

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable:
            protected = self._protected()
            for tensor in _written(func._schema, args, kwargs or {}):
                for address in protected.keys() & addresses(tensor):
                    error = IsolationError(str(func), protected[address])
                    self.refused = str(error)
                    raise error
        return func(*args, **(kwargs or {}))


def _written(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        values = value if isinstance(value, list | tuple) else [value]
        yield from (each for each in values if isinstance(each, Tensor))


def _put_back(names: Sequence[str], tensors: Sequence[Tensor], before: Sequence[int]) -> str:
    """Set moved counters back; the sentence that names what was written to."""
    moved = [index for index, tensor in enumerate(tensors) if tensor._version != before[index]]
    set_counters = torch._C._autograd._unsafe_set_version_counter
    set_counters(tuple(tensors[index] for index in moved), tuple(before[index] for index in moved))
    return f"the seed wrote to {', '.join(names[index] for index in moved)} in place"


def shared(a: Tensor, b: Tensor) -> bool:
    """Whether some of their memory begins at the same place."""
    if type(a) is type(b) is Tensor and a.layout == b.layout == torch.strided:
        return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != 0
    return not addresses(a).isdisjoint(addresses(b))


def addresses(tensor: Tensor) -> set[int]:
    """Where its memory begins: in several places for a class that wraps tensors, in none for what holds none yet."""
    tensor = own_part(tensor)
    if type(tensor) not in PLAIN and is_traceable_wrapper_subclass(tensor):
        return set().union(*(addresses(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0]))
    if tensor.layout != torch.strided:
        return set()
    return {tensor.untyped_storage().data_ptr()} - {0}
