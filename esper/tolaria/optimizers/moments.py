"""What a torch optimizer remembers of its parameters: kept, put back, handed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from esper.kernels.split import own_part, placed
from esper.tolaria.state.bank import Bank, copy_all

State = dict[str, object]
MOMENTUM = "momentum_buffer"  # as torch's SGD names it


@dataclass(frozen=True, slots=True)
class Moments:
    """State per parameter, in the order of the parameters given; the tensors are copies."""

    states: list[State]

    def tensors(self) -> list[torch.Tensor]:
        values = (value for state in self.states for value in state.values() if isinstance(value, torch.Tensor))
        return [part for value in values for part in _parts(value)]


def keep(optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], bank: Bank) -> Moments:
    states = [{name: _own(value) for name, value in optimizer.state.get(p, {}).items()} for p in parameters]
    live = [(state, name, value) for state in states for name, value in state.items() if _is_tensor(value)]
    kept = iter(bank.keep([part for _, _, value in live for part in _parts(value)]))
    for state, name, value in live:
        state[name] = _joined(value, [next(kept) for _ in _parts(value)])
    return Moments(states)


def put_back(optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], moments: Moments) -> None:
    """Make the optimizer remember what was kept for these parameters, in place where it can."""
    into: list[torch.Tensor] = []
    source: list[torch.Tensor] = []
    for parameter, kept in zip(parameters, moments.states, strict=True):
        present = optimizer.state.pop(parameter, {})
        for name, value in kept.items():
            if isinstance(value, torch.Tensor):
                present[name] = _same_shape(present.get(name), value, parameter.dtype)
                into += _parts(present[name])
                source += _parts(value)
            else:
                present[name] = _own(value)
        if kept:
            optimizer.state[parameter] = {name: present[name] for name in kept}
    copy_all(into, source)


def hand_on(source: torch.optim.Optimizer, into: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]) -> bool:
    """Let `into` go on from what `source` remembers of these; False, and nothing done, where it keeps other things."""
    held = [parameter for parameter in parameters if source.state.get(parameter)]
    groups = {parameter: group for group in into.param_groups for parameter in group["params"]}
    if not held or not _same_kind(source, into) or any(groups[each].get("amsgrad") for each in held):
        return False
    for parameter in held:
        state = dict(source.state[parameter])
        if isinstance(count := state.get("step"), torch.Tensor) and counts_on_device(groups[parameter]):
            state["step"] = count.to(parameter.device)
        into.state[parameter] = state
    return True


def even_out(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
    """Where a fused SGD has momentum for some of this group, give the others that it will step a momentum of 0.

    torch steps no such group in which only some have one. With 0 the first step is torch's own, shorter by what
    `dampening` takes off every later one.
    """
    if not _is_fused_sgd(optimizer, group):
        return
    stepped = [each for each in group["params"] if each.requires_grad or each.grad is not None]
    without = [parameter for parameter in stepped if not has_momentum(optimizer, parameter)]
    if len(without) < len(stepped):
        for parameter in without:
            optimizer.state[parameter][MOMENTUM] = torch.zeros_like(parameter)


def forget(optimizer: torch.optim.Optimizer) -> None:
    """Make it remember nothing, as if it had just been built.

    A fused SGD keeps a momentum of 0 where it has one, for `even_out`'s reason: of a group that begins anew some
    parameters may have no gradient in its first step, and torch takes no other after that.
    """
    groups = [group for group in optimizer.param_groups if _is_fused_sgd(optimizer, group)]
    begun = [each for group in groups for each in group["params"] if has_momentum(optimizer, each)]
    optimizer.state.clear()
    for parameter in begun:
        optimizer.state[parameter][MOMENTUM] = torch.zeros_like(parameter)


def _is_fused_sgd(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> bool:
    return isinstance(optimizer, torch.optim.SGD) and bool(group.get("fused"))


def has_momentum(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> bool:
    return optimizer.state.get(parameter, {}).get(MOMENTUM) is not None


def _same_kind(source: torch.optim.Optimizer, into: torch.optim.Optimizer) -> bool:
    """torch's AdamW is an Adam that decays otherwise: both remember the same, and so do two of one class."""
    both_adam = isinstance(source, torch.optim.Adam) and type(into) in (torch.optim.Adam, torch.optim.AdamW)
    return both_adam or type(source) is type(into)


def counts_on_device(group: Mapping[str, object]) -> bool:
    """Whether a group's steps are counted beside its parameters."""
    return bool(group.get("fused") or group.get("capturable"))


def _parts(value: object) -> list[torch.Tensor]:
    """The plain tensors that a value consists of, or this rank's part of it where it is split.

    8-bit state is codes, scales and a table, which copy alone.
    """
    assert isinstance(value, torch.Tensor)
    value = own_part(value)
    if not is_traceable_wrapper_subclass(value):
        return [value]
    names, _ = value.__tensor_flatten__()
    return [getattr(value, name) for name in names]


def _joined(like: object, parts: list[torch.Tensor]) -> torch.Tensor:
    """The inverse of `_parts`, for a value of the same kind and shape."""
    assert isinstance(like, torch.Tensor)
    own = own_part(like)
    if not is_traceable_wrapper_subclass(own):
        return placed(parts[0], like)
    names, rest = own.__tensor_flatten__()
    made: torch.Tensor = type(own).__tensor_unflatten__(
        dict(zip(names, parts, strict=True)), rest, own.shape, own.stride()
    )
    return placed(made, like)


def _own(value: object) -> object:
    """A list is one of tensors that are made once, as LBFGS has them: it is changed, they are not."""
    return [*value] if isinstance(value, list) else value


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _same_shape(present: object, kept: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`dtype` is the parameter's: a moment that was cast with it since takes what is kept in its new precision."""
    if isinstance(present, torch.Tensor) and _layout(present) == _layout(kept):
        return present
    plain = type(present) is torch.Tensor and type(kept) is torch.Tensor and kept.is_floating_point()
    if plain and isinstance(present, torch.Tensor) and _layout(present) == [(kept.shape, dtype, kept.layout)]:
        return present
    return _joined(kept, [torch.empty_like(part) for part in _parts(kept)])


def _layout(value: torch.Tensor) -> list[tuple[torch.Size, torch.dtype, torch.layout]]:
    return [(part.shape, part.dtype, part.layout) for part in _parts(value)]
