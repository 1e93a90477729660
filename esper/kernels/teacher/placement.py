"""Puts a teacher's weights where its mode wants them: all loaded, linear ones as int8, or a unit at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from esper.kernels.teacher import int8, matching, memory
from esper.kernels.teacher.layout import units
from esper.kernels.teacher.matching import Place, Weights
from esper.kernels.teacher.settings import Mode


class Placement:
    """The places of one model's parameters and the weights that belong there. Knows no inputs and no precision of math.

    Each filling makes new Parameter objects; `originals` are those that the model was built with.
    """

    def __init__(self, model: nn.Module, weights: Weights, device: torch.device) -> None:
        self.model, self.weights, self.device = model, weights, device
        self.places = matching.places(model, weights)
        self.originals = list(model.parameters())
        self._handles: list[RemovableHandle] = []
        matching.load_buffers(model, weights, device)

    def owns(self, parameter: nn.Parameter) -> bool:
        return any(parameter is each for each in (*self.originals, *self.model.parameters()))

    def settle(self, mode: Mode, dtype: torch.dtype | None) -> None:
        """Go from any mode to another; a failure on the way leaves the model unfit until the next call."""
        self.empty()
        if mode == "offload":
            self._offload(dtype)
        else:
            self._load(dtype, quantized=mode == "int8")

    def empty(self) -> None:
        """Hold no weight."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for place in self.places:
            place.module._parameters[place.name] = self._absent(place)
        for original in self.originals:  # whoever still has them shall not keep the memory
            if not original.is_meta:
                original.data = original.data.new_empty(0)

    def resident_bytes(self) -> int:
        return memory.num_bytes((*self.model.parameters(), *self.model.buffers()))

    def expected_bytes(self, mode: Mode, dtype: torch.dtype | None) -> int:
        """What a mode will hold of weights and buffers at most while a forward runs.

        In int8 that is one layer's weight at full size besides: torchao makes it anew in each forward on the CPU.
        """
        sizes = {place.source: self._size(place, dtype, mode == "int8") for place in self.places}
        held = memory.num_bytes(self.model.buffers())
        if mode == "full":
            return held + sum(sizes.values())
        if mode == "int8":
            whole = (self._size(place, dtype, False) for place in self.places if _is_linear_weight(place))
            return held + sum(sizes.values()) + max(whole, default=0)
        moved = [{place.source for place in unit} for unit in self._units().values()]
        kept = sizes.keys() - set().union(*moved)
        largest = max((sum(sizes[name] for name in group) for group in moved), default=0)
        return held + sum(sizes[name] for name in kept) + largest

    def _load(self, dtype: torch.dtype | None, quantized: bool) -> None:
        made: dict[str, nn.Parameter] = {}
        for place in self.places:
            if place.source not in made:
                here = torch.device("cpu") if quantized and _is_linear_weight(place) else self.device
                made[place.source] = self._filled(place, dtype, here)
            place.module._parameters[place.name] = made[place.source]
            if quantized and _is_linear_weight(place) and not place.tied:
                self._quantize(place.module)

    def _quantize(self, linear: nn.Module) -> None:
        """Layer by layer and on the CPU first, so that no more than one is ever held at full size on the device."""
        assert isinstance(linear, nn.Linear)
        int8.quantize(linear)
        linear.weight = nn.Parameter(linear.weight.to(self.device), requires_grad=False)

    def _offload(self, dtype: torch.dtype | None) -> None:
        groups = self._units()
        moved = {place for group in groups.values() for place in group}
        made: dict[str, nn.Parameter] = {}
        for place in self.places:
            if place not in moved:
                if place.source not in made:
                    made[place.source] = self._filled(place, dtype, self.device)
                place.module._parameters[place.name] = made[place.source]
        for unit, group in groups.items():
            guest = Guest(self, group, dtype)
            self._handles.append(unit.register_forward_pre_hook(guest.enter))
            self._handles.append(unit.register_forward_hook(guest.leave, always_call=True))

    def _units(self) -> dict[nn.Module, list[Place]]:
        """By unit, the places that come and go with it; tied ones stay, as one module may use another's."""
        groups = {}
        for unit in units(self.model):
            inside = set(unit.modules())
            if group := [place for place in self.places if place.module in inside and not place.tied]:
                groups[unit] = group
        return groups

    def _filled(self, place: Place, dtype: torch.dtype | None, device: torch.device) -> nn.Parameter:
        tensor = self.weights.read(place.source).to(device, self._dtype(place, dtype), copy=True)
        return nn.Parameter(tensor, requires_grad=False)

    def visiting(self, place: Place, dtype: torch.dtype | None) -> nn.Parameter:
        """For one forward: on the CPU the mapped file itself, where no other dtype is asked for."""
        tensor = self.weights.read(place.source).to(self.device, self._dtype(place, dtype))
        return nn.Parameter(tensor, requires_grad=False)

    def _absent(self, place: Place) -> nn.Parameter:
        shape = self.weights.shapes[place.source]
        return nn.Parameter(torch.empty(shape, dtype=place.dtype, device="meta"), requires_grad=False)

    def _dtype(self, place: Place, dtype: torch.dtype | None) -> torch.dtype:
        return dtype if dtype is not None and place.dtype.is_floating_point else place.dtype

    def _size(self, place: Place, dtype: torch.dtype | None, quantized: bool) -> int:
        item = self._dtype(place, dtype).itemsize
        if quantized and _is_linear_weight(place) and not place.tied:
            assert isinstance(place.module, nn.Linear)
            return int8.num_bytes(place.module, item)
        return item * torch.Size(self.weights.shapes[place.source]).numel()


class Guest:
    """The weights of one unit, there while it runs."""

    def __init__(self, placement: Placement, places: Sequence[Place], dtype: torch.dtype | None) -> None:
        self._placement, self._places, self._dtype = placement, places, dtype
        self._absent: list[nn.Parameter] = [getattr(place.module, place.name) for place in places]

    def enter(self, module: nn.Module, args: Any) -> None:
        for place in self._places:
            # A new Parameter each time: what autograd has saved of the last one stays whole.
            place.module._parameters[place.name] = self._placement.visiting(place, self._dtype)

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        for place, absent in zip(self._places, self._absent, strict=True):
            place.module._parameters[place.name] = absent


def _is_linear_weight(place: Place) -> bool:
    # Only the class itself: what nn.MultiheadAttention projects with is a subclass, and never called.
    return place.name == "weight" and type(place.module) is nn.Linear
