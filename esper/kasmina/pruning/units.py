"""What of a model can be pruned by itself: output channels of layers, and heads of attentions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from esper.errors import SettingError
from esper.kasmina.slots.naming import bare_name
from esper.kernels.split import is_split
from esper.leyline import contracts as pb

CHANNEL, HEAD = pb.PruningMaskType.PRUNING_MASK_CHANNEL, pb.PruningMaskType.PRUNING_MASK_ATTENTION_HEAD
LAYER, WEIGHT = pb.PruningMaskType.PRUNING_MASK_LAYER, pb.PruningMaskType.PRUNING_MASK_UNSTRUCTURED
CONVOLUTIONS: Mapping[type[nn.Module], int] = {nn.Conv1d: 1, nn.Conv2d: 2}  # spatial dimensions behind the channels

Key = tuple[str, int]  # parameter as the wire names it, PruningMaskType


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor's share of a unit: along `dim` lie `repeats` rows of `num_channels` blocks, each `width` wide."""

    name: str  # within the unit's module
    dim: int
    width: int = 1
    repeats: int = 1

    def spread(self, channels: Tensor) -> Tensor:
        """One value per channel, shape [num_channels], as one per position along `dim`."""
        return channels.repeat_interleave(self.width).repeat(self.repeats)

    def broadcast(self, channels: Tensor, num_dims: int) -> Tensor:
        """The same, shaped to broadcast against the tensor."""
        spread = self.spread(channels)
        return spread.reshape(*(len(spread) if at == self.dim else 1 for at in range(num_dims)))

    def blocks(self, shape: torch.Size, num_channels: int) -> tuple[int, ...]:
        """The tensor's shape with `dim` split, so that the channels have a dimension of their own: dim + 1."""
        return (*shape[: self.dim], self.repeats, num_channels, self.width, *shape[self.dim + 1 :])


@dataclass(frozen=True, slots=True)
class Unit:
    """What one mask covers: the channels, or heads, of one layer, a whole module, or the single weights of a parameter.

    `parameter` and `dim` are how the wire names it; of a whole module it is the module's name.
    """

    parameter: str
    mask_type: int
    dim: int
    num_channels: int
    module: nn.Module
    parts: tuple[Part, ...]
    trailing: int = 0  # dimensions of the output behind the channels

    @property
    def key(self) -> Key:
        return self.parameter, self.mask_type

    def tensors(self) -> list[tuple[Part, nn.Parameter]]:
        return [(part, self.module.get_parameter(part.name)) for part in self.parts]


def units_of(model: nn.Module, heads: Mapping[str, int]) -> dict[Key, Unit]:
    """Channels and heads, by their keys. Layers whose parameters another module shares have none: both would change.
    Nor have those whose parameters are split over ranks.

    `heads` names output projections of attentions that are not nn.MultiheadAttention, with their numbers of heads.
    Raises SettingError for a name that is no such layer, or a number that does not divide its inputs.
    """
    modules, owners = named(model), owners_in(model)
    inside = {id(module.out_proj) for module in modules.values() if isinstance(module, nn.MultiheadAttention)}
    found = [
        unit
        for name, module in modules.items()
        if id(module) not in inside
        and all(owners[id(p)] == 1 and not is_split(p) for p in module.parameters(recurse=False))
        for unit in _units(name, module)
    ]
    found += [_split(name, modules, num_heads) for name, num_heads in heads.items()]
    return {unit.key: unit for unit in found}


def named(model: nn.Module) -> dict[str, nn.Module]:
    """Modules by the names that the wire uses."""
    return {bare_name(name): module for name, module in model.named_modules()}


def owners_in(model: nn.Module) -> Counter[int]:
    """By a parameter's id, how many modules hold it."""
    return Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))


def _units(name: str, module: nn.Module) -> Iterator[Unit]:
    if isinstance(module, nn.MultiheadAttention):
        yield _attention(name, module)
        return
    own, dim = _own(module), output_dim(module)
    if dim is None:
        return
    weight, parts = own["weight"], [Part("weight", dim)] + ([Part("bias", 0)] if "bias" in own else [])
    trailing = next((num for kind, num in CONVOLUTIONS.items() if isinstance(module, kind)), 0)
    yield Unit(_join(name, "weight"), CHANNEL, dim, weight.shape[dim], module, tuple(parts), trailing)


def output_dim(module: nn.Module) -> int | None:
    """The dimension of its weight that the output channels lie along; None where it has none."""
    weight, num_outputs = _own(module).get("weight"), getattr(module, "nf", None)
    if weight is None or is_lazy(weight):
        return None  # parametrized, quantised, or not shaped yet
    if isinstance(module, (nn.Linear, *CONVOLUTIONS)):
        return 0
    if weight.ndim == 2 and weight.shape[1] == num_outputs:
        return 1  # a Linear whose weight lies the other way round, as in GPT-2
    return None


def _own(module: nn.Module) -> dict[str, nn.Parameter]:
    """Its parameters, and not by attributes: to read a weight with a spectral norm is a step of its power iteration."""
    return dict(module.named_parameters(recurse=False))  # `_parameters` of a ScriptModule is no mapping


def _attention(name: str, module: nn.MultiheadAttention) -> Unit:
    """Queries, keys and values of a head, and the columns that take its output: zeros there have zero gradients."""
    width = module.head_dim
    rows = {"in_proj_weight": (0, 3), "q_proj_weight": (0, 1), "k_proj_weight": (0, 1), "v_proj_weight": (0, 1)}
    rows |= {"in_proj_bias": (0, 3), "bias_k": (2, 1), "bias_v": (2, 1)}
    parts = [
        Part(part, dim, width, num) for part, (dim, num) in rows.items() if getattr(module, part, None) is not None
    ]
    return Unit(
        _join(name, "out_proj.weight"), HEAD, 1, module.num_heads, module, (*parts, Part("out_proj.weight", 1, width))
    )


def _split(name: str, modules: Mapping[str, nn.Module], num_heads: int) -> Unit:
    module = modules.get(bare_name(name))
    dim = None if module is None else output_dim(module)
    if module is None or dim is None or not name:
        layers = [each for each, layer in modules.items() if output_dim(layer) is not None and each]
        raise SettingError("heads", name, f"a layer of the model{near(name, layers)}")
    weight = module.get_parameter("weight")
    inputs = weight.shape[1 - dim]
    if inputs % num_heads:
        raise SettingError(f"heads[{name!r}]", num_heads, f"a number that divides its {inputs} inputs")
    part = Part("weight", 1 - dim, inputs // num_heads)
    return Unit(_join(name, "weight"), HEAD, 1 - dim, num_heads, module, (part,))


def near(name: str, known: list[str]) -> str:
    """How an error points at what may have been meant."""
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    return f"; near: {', '.join(close)}" if close else f"; there are {len(known)}"


def _join(module: str, parameter: str) -> str:
    return bare_name(f"{module}.{parameter}") if module else parameter
