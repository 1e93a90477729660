"""A device of its own, "far", whose memory is this machine's: what would fail or wait on a GPU does so here.

Operations compute with torch's CPU kernels on the same bytes. A tensor of the CPU among those of the device raises, as
do generators of the CPU; a backward runs in a thread of its own, as on a GPU. What a GPU would have to be waited for is
counted by the place in esper/ that asks. One process can have one such device, for good.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as tree
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

import esper

NAME = "far"
OURS = str(Path(esper.__file__).parent) + "/"
KEYS: Any = torch._C.DispatchKey
ON_CPU, AUTOCAST = torch._C.DispatchKeySet(KEYS.CPU), torch._C.DispatchKeySet(KEYS.AutocastPrivateUse1)
SHAPED = ("as_strided", "view", "_reshape_alias", "unfold", "set_.source_Storage_storage_offset", "set_.source_Tensor")
"""Kernels of the CPU that look at no bytes, and leave a tensor where it is."""
NARROWED, WIDENED = ("linear", "mm", "addmm", "matmul", "bmm"), ("layer_norm",)  # by autocast, as on CUDA
FROM_ANYWHERE = {"copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_"}
"""Which take tensors of the CPU too, as they do on CUDA."""
WAITING = {"nonzero", "masked_select", "equal", "_unique2", "unique_dim", "bincount"}
aten = torch.ops.aten


class Waits:
    """How often the device had to be waited for, by the place of ours that asked; "" where torch or a test did. And how
    many operations it has computed."""

    def __init__(self) -> None:
        self.places: Counter[str] = Counter()
        self.num_computed = 0

    def note(self) -> None:
        frames = (frame.f_code for frame, _ in traceback.walk_stack(None))
        ours = next((code for code in frames if code.co_filename.startswith(OURS)), None)
        self.places[f"{ours.co_filename.removeprefix(OURS)}:{ours.co_name}" if ours else ""] += 1


class Far(_DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


waits = Waits()
_held: dict[int, torch.UntypedStorage] = {}  # by address; kept for good, as no storage of the device owns its bytes
_libraries: list[torch.library.Library] = []


def register() -> torch.device:
    """Once a process."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=Far())
    library: Any = torch.library.Library
    every, own = library("_", "IMPL"), library("aten", "IMPL")
    _libraries.extend((every, own))  # what nobody holds is taken back
    every.fallback(_computed, "PrivateUse1")
    every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for name in SHAPED:
        own.impl(name, _shaped(_operator(name)), "PrivateUse1")
    own.impl("empty.memory_format", _empty, "PrivateUse1")
    own.impl("empty_strided", _empty_strided, "PrivateUse1")
    own.impl("_copy_from", _copied, "PrivateUse1")
    own.impl("_local_scalar_dense", _read, "PrivateUse1")
    for names, dtype in ((NARROWED, None), (WIDENED, torch.float32)):
        for name in names:
            own.impl(name, _cast(_operator(name), dtype), "AutocastPrivateUse1")
    storages: Any = torch.UntypedStorage
    storages.clone, storages.cpu = _cloned(storages.clone), _to_cpu(storages.cpu)
    return torch.device(NAME, 0)


def is_far(value: object) -> bool:
    return isinstance(value, Tensor) and value.device.type == NAME


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def _near(tensor: Tensor) -> Tensor:
    """The same bytes, as a tensor of the CPU."""
    if not tensor.untyped_storage().nbytes():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    place = _held[tensor.untyped_storage().data_ptr()], tensor.storage_offset(), tensor.shape, tensor.stride()
    return torch.empty(0, dtype=tensor.dtype, device="cpu").set_(*place)


def _storage(host: torch.UntypedStorage) -> Any:
    """Of the device, with these bytes."""
    host = host if host.nbytes() else torch.empty(1, dtype=torch.uint8, device="cpu").untyped_storage()
    _held[host.data_ptr()] = host
    made: Any = torch._C._construct_storage_from_data_pointer(host.data_ptr(), torch.device(NAME, 0), host.nbytes())
    return made


def _put(tensor: Tensor, storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    place = storage, like.storage_offset(), like.shape, like.stride()
    placed: Tensor = aten.set_.source_Storage_storage_offset.redispatch(ON_CPU, tensor, *place)
    return placed


def _far(near: Tensor, homes: dict[int, torch.UntypedStorage] | None = None) -> Tensor:
    """On the device; a view of one of the storages in `homes`, where it shares the bytes of one."""
    made: Tensor = torch._C._acc.create_empty_tensor((0,), near.dtype)
    home = (homes or {}).get(near.untyped_storage().data_ptr()) if near.untyped_storage().nbytes() else None
    return _put(made, home or _storage(near.untyped_storage()), near)


def _computed(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Any operation that has no kernel of its own here: on the CPU, with results on the device."""
    waits.num_computed += 1
    name = operator._schema.name.split("::")[1]
    args = tuple(map(_tensor, args, operator._schema.arguments))
    given, form = tree.tree_flatten((args, kwargs))
    _require_here(name, given)
    to = kwargs.get("device")
    leaves = name == "_to_copy" and to is not None and torch.device(to).type != NAME
    if leaves or name in WAITING or (name.startswith("index") and any(map(_is_mask, given))):
        waits.note()
    near = {id(each): _near(each) for each in given if is_far(each)}
    homes = {near[id(each)].untyped_storage().data_ptr(): each.untyped_storage() for each in given if is_far(each)}
    arguments, named = tree.tree_unflatten([_here(each, near) for each in given], form)
    with torch.no_grad():
        result = operator(*arguments, **named)
    if leaves:
        return result
    by_near = {id(each): one for one in given if is_far(one) for each in [near[id(one)]]}
    return tree.tree_map_only(Tensor, lambda each: _back(each, by_near, homes), result)


def _tensor(given: Any, argument: Any) -> Any:
    """A number that torch had made a tensor of, and hands on as a number."""
    is_number = isinstance(given, int | float) and str(argument.type) == "Tensor"
    return torch.tensor(given, device="cpu") if is_number else given


def _here(given: Any, near: dict[int, Tensor]) -> Any:
    if isinstance(given, torch.device) and given.type == NAME:
        return torch.device("cpu")
    return near.get(id(given), given)


def _back(result: Tensor, by_near: dict[int, Tensor], homes: dict[int, torch.UntypedStorage]) -> Tensor:
    """What was written into is what was given, also where it was given another size."""
    if (given := by_near.get(id(result))) is None:
        return _far(result, homes)
    if given.shape != result.shape or given.untyped_storage().nbytes() < result.untyped_storage().nbytes():
        _put(given, _storage(result.untyped_storage()), result)
    return given


def _require_here(name: str, given: Sequence[Any]) -> None:
    """RuntimeError where CUDA would raise."""
    for each in given:
        if isinstance(each, torch.Generator) and each.device.type != NAME:
            raise RuntimeError(f"{name}: a generator of {each.device} for a tensor of {NAME}")
        if isinstance(each, Tensor) and each.device.type == "cpu" and each.dim() and name not in FROM_ANYWHERE:
            raise RuntimeError(f"{name}: all tensors must be on one device, found {NAME} and cpu")


def _is_mask(given: object) -> bool:
    return isinstance(given, Tensor) and given.dtype in (torch.bool, torch.uint8)


def _shaped(operator: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: operator.redispatch(ON_CPU, *args, **kwargs)


def _empty(size: Sequence[int], dtype: Any = None, *_: Any, memory_format: Any = None, **__: Any) -> Tensor:
    laid = memory_format or torch.contiguous_format
    return _far(torch.empty(size, dtype=dtype or torch.get_default_dtype(), device="cpu", memory_format=laid))


def _empty_strided(size: Sequence[int], stride: Sequence[int], dtype: Any = None, *_: Any, **__: Any) -> Tensor:
    return _far(torch.empty_strided(size, stride, dtype=dtype or torch.get_default_dtype(), device="cpu"))


def _copied(source: Tensor, into: Tensor, non_blocking: bool = False) -> Tensor:
    waits.num_computed += 1
    if not is_far(into):
        waits.note()
    near = [_near(each) if is_far(each) else each for each in (source, into)]
    near[1].copy_(near[0])
    return into


def _read(tensor: Tensor) -> object:
    waits.note()
    return _near(tensor).item()


def _cast(operator: Any, always: torch.dtype | None) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = always or torch.get_autocast_dtype(NAME)
        with torch._C._ExcludeDispatchKeyGuard(AUTOCAST):
            cast = [each.to(dtype) if is_far(each) and each.is_floating_point() else each for each in args]
            return operator(*cast, **kwargs)

    return run


def _cloned(usual: Callable[..., Any]) -> Callable[..., Any]:
    """Of a storage, for deepcopy: the device has no allocator that torch could ask for one."""
    return lambda of: _storage(usual(_held[of.data_ptr()])) if of.device.type == NAME else usual(of)


def _to_cpu(usual: Callable[..., Any]) -> Callable[..., Any]:
    def run(of: torch.UntypedStorage) -> torch.UntypedStorage:
        if of.device.type != NAME:
            near: torch.UntypedStorage = usual(of)
            return near
        waits.note()
        return _cloned_bytes(_held[of.data_ptr()])

    return run


def _cloned_bytes(host: Any) -> torch.UntypedStorage:
    copied: torch.UntypedStorage = host.clone()
    return copied
