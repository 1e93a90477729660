"""Hooks that keep what was pruned out of every forward. A deep copy of the model keeps them, with masks of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from esper.kasmina.pruning.units import CHANNEL, LAYER, WEIGHT, Unit
from esper.kasmina.slots.outputs import joinable, with_tensor


class ChannelGate:
    """Zeroes output channels. Their weights' gradients are then exactly zero, since nothing flows back into them.

    A choice and not a product, as 0 * inf is NaN. The mask is changed in place, so that compiled code stays.
    """

    precedes_seeds = True

    def __init__(self, kept: Tensor, trailing: int) -> None:
        self.kept = kept.reshape(-1, *(1,) * trailing)

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return torch.where(self.kept.to(output.device), output, 0)


class HeadGate:
    """Zeroes what an output projection gets from pruned heads, and so all that flows back into them."""

    def __init__(self, kept: Tensor) -> None:
        self.kept = kept

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return torch.where(self.kept.to(args[0].device), args[0], 0), *args[1:]


class LayerGate:
    """Zeroes the first tensor of what a module gives, and so all that flows back into it."""

    precedes_seeds = True

    def __init__(self, kept: Tensor) -> None:
        self.kept = kept

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        if (found := joinable(output)) is None:
            return output
        path, tensor = found
        return with_tensor(output, path, torch.where(self.kept.to(tensor.device), tensor, 0))


class WeightGate:
    """Zeroes the weights themselves. nn.MultiheadAttention calls no submodule whose output could be held at zero.

    With a head's value rows and output columns at zero every gradient of the head is exactly zero. Written through
    `.data`: values that are zero already stay what autograd has saved, also where the module is used twice.
    """

    def __init__(self, pruned: Sequence[tuple[str, Tensor]]) -> None:
        self.pruned = list(pruned)

    def __call__(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_exporting():  # weights are constants there, and zero already
            return
        for name, where in self.pruned:
            weights = attrgetter(name)(module)
            if isinstance(weights, nn.Parameter):  # else functional_call() has put a tensor of the caller's there
                weights.data.masked_fill_(where.to(weights.device), 0)


class Gate:
    """The hook of one unit, and the masks that it holds. `kept`: bool, shape [num_channels]."""

    def __init__(self, unit: Unit, kept: Tensor) -> None:
        self._unit = unit
        self._masks = [(part, part.broadcast(kept, p.ndim).to(p.device)) for part, p in unit.tensors()]
        both = zip(unit.tensors(), self._masks, strict=True)
        self._placed = [(part.name, p, mask.device) for (part, p), (_, mask) in both]
        self._handles = [self._register(kept)]
        self._waits = False  # for its parameter to get gradients, which no hook can be hung on before
        if unit.mask_type == WEIGHT:
            self._stop()

    def fits(self) -> bool:
        """Whether the module's parameters are these, as they were: a script may assign others, move or unfreeze them.

        Each step asks. A weight that was parametrized since is none any more, and to read it would compute it.
        """
        module = self._unit.module
        for name, p, device in self._placed:
            each = module._parameters.get(name) if "." not in name else _parameter_below(module, name)
            if each is not None and (each is not p or p.device != device or (self._waits and p.requires_grad)):
                return False
        return True

    def pairs(self) -> list[tuple[nn.Parameter, Tensor]]:
        """Every parameter of the unit with its mask, which broadcasts against it."""
        return [(p, mask) for (_, p, _), (_, mask) in zip(self._placed, self._masks, strict=True)]

    def write(self, kept: Tensor) -> None:
        """Another mask, in place."""
        for part, mask in self._masks:
            mask.copy_(part.broadcast(kept, mask.ndim))
        hook = self._hook
        if isinstance(hook, ChannelGate | LayerGate):
            hook.kept.copy_(kept.reshape(hook.kept.shape))
        elif isinstance(hook, HeadGate):
            hook.kept.copy_(self._unit.parts[0].spread(kept))
        else:
            for (_, where), (_, mask) in zip(hook.pruned, self._masks, strict=True):
                where.copy_(~mask)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _stop(self) -> None:
        """Single weights at zero have gradients all the same, which momentum and the user's clipping would see."""
        for (_, parameter, _), (_, mask) in zip(self._placed, self._masks, strict=True):
            if parameter.requires_grad:
                self._handles.append(parameter.register_hook(partial(_kept_gradient, mask)))  # type: ignore[no-untyped-call]
            else:
                self._waits = True

    def _register(self, kept: Tensor) -> RemovableHandle:
        unit, device = self._unit, self._masks[0][1].device
        self._hook: ChannelGate | HeadGate | LayerGate | WeightGate
        if unit.mask_type == CHANNEL:  # before a seed's slot, whose seed joins what the host still gives
            self._hook = ChannelGate(kept.to(device, copy=True), unit.trailing)
            return unit.module.register_forward_hook(self._hook, prepend=True)
        if unit.mask_type == LAYER:
            self._hook = LayerGate(kept.to(device, copy=True))
            return unit.module.register_forward_hook(self._hook, prepend=True)
        if unit.mask_type == WEIGHT or isinstance(unit.module, nn.MultiheadAttention):
            self._hook = WeightGate([(part.name, ~mask) for part, mask in self._masks])
        else:
            self._hook = HeadGate(unit.parts[0].spread(kept).to(device))
        return unit.module.register_forward_pre_hook(self._hook)


def _kept_gradient(mask: Tensor, gradient: Tensor) -> Tensor:
    if not gradient.is_sparse:
        return torch.where(mask, gradient, 0)
    rows, values = gradient._indices(), gradient._values()  # as an Embedding's, which need not be added up
    kept, in_order = torch.where(mask[rows.unbind()], values, 0), gradient.is_coalesced()
    return torch.sparse_coo_tensor(rows, kept, gradient.shape, is_coalesced=in_order, check_invariants=False)


def _parameter_below(module: nn.Module, name: str) -> nn.Parameter | None:
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path)._parameters.get(leaf)
