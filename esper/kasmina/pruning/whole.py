"""What of a model can be pruned where the settings name it: whole modules, and the single weights of a parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from esper.errors import SettingError
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.units import LAYER, WEIGHT, Key, Part, Unit, named, near, owners_in, units_of
from esper.kasmina.slots.naming import bare_name
from esper.kernels.split import is_split

MOST_WEIGHTS = 1 << 16  # of one parameter: told in three floats each, they fill three quarters of a body's 1 MiB


@dataclass(frozen=True, slots=True)
class Weights(Part):
    """Every element of a tensor by itself, in row-major order."""

    shape: tuple[int, ...] = ()

    def broadcast(self, channels: Tensor, num_dims: int) -> Tensor:
        return channels.reshape(self.shape)

    def blocks(self, shape: torch.Size, num_channels: int) -> tuple[int, ...]:
        return 1, num_channels, 1


def all_units(model: nn.Module, settings: KasminaCheckpointPruningConfig) -> dict[Key, Unit]:
    """Every unit by its key. A parameter of which single weights are pruned has no channels.

    Raises SettingError for a name in the settings that is nothing of the kind, or that can't be pruned alone.
    """
    found = [_module(model, name) for name in settings.layers] + [_weights(model, name) for name in settings.weights]
    names = {bare_name(name) for name in settings.weights}
    layers = {key: unit for key, unit in units_of(model, settings.heads).items() if key[0] not in names}
    return layers | {unit.key: unit for unit in found}


def _module(model: nn.Module, name: str) -> Unit:
    modules = named(model)
    module = modules.get(bare_name(name))
    if module is None or not name:
        raise SettingError("layers", name, f"a module of the model{near(name, [*modules])}")
    parameters = dict(module.named_parameters())
    computed = any(is_parametrized(each) for each in module.modules())
    odd = any(is_lazy(each) or is_split(each) for each in parameters.values())
    if not parameters or computed or odd or _shares(model, module):
        expected = "a module of the model, with whole parameters that it neither computes nor shares"
        raise SettingError("layers", name, expected)
    parts = [Part(each, 0, p.shape[0] if p.ndim else 1) for each, p in parameters.items()]
    return Unit(bare_name(name), LAYER, 0, 1, module, tuple(parts))


def _shares(model: nn.Module, module: nn.Module) -> bool:
    """Whether a parameter of the module stands outside it too."""
    inside = owners_in(module)
    return any(num > inside[id_] for id_, num in owners_in(model).items() if id_ in inside)


def _weights(model: nn.Module, name: str) -> Unit:
    modules, bare = named(model), bare_name(name)
    parameters = {bare_name(each): p for each, p in model.named_parameters(remove_duplicate=False)}
    if bare not in parameters:
        raise SettingError("weights", name, f"a parameter of the model{near(name, [*parameters])}")
    parameter, owner = parameters[bare], bare.rpartition(".")[0]
    if is_lazy(parameter) or is_split(parameter) or owners_in(model)[id(parameter)] > 1:
        raise SettingError("weights", name, "a whole parameter that has its shape and that one module alone holds")
    if parameter.numel() > MOST_WEIGHTS:
        met = f"{name}, {parameter.numel()} weights"
        raise SettingError("weights", met, f"at most {MOST_WEIGHTS}: their importance has to fit one message")
    holder = _called(owner, modules)
    path = bare[len(holder) + 1 :] if holder else bare
    shape = tuple(parameter.shape)
    return Unit(bare, WEIGHT, 0, math.prod(shape), modules[holder], (Weights(path, 0, shape=shape),))


def _called(owner: str, modules: Mapping[str, nn.Module]) -> str:
    """The module whose forward uses the weights: nn.MultiheadAttention never calls its output projection."""
    above = owner.rpartition(".")[0]
    return above if isinstance(modules.get(above), nn.MultiheadAttention) else owner
