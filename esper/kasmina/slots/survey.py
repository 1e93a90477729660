"""What there is in a model for seeds to join: its sites, what flows through them, and which blueprints fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from esper.errors import SettingError
from esper.kasmina.gates.ablation import undisturbed
from esper.kasmina.slots.naming import bare_name, is_called, undistributed
from esper.kasmina.slots.outputs import joinable
from esper.kernels.blueprints import BLUEPRINTS, Blueprint, fitting

CALL_ERRORS = (RuntimeError, TypeError, ValueError, LookupError, AttributeError)  # what wrong inputs make a model raise


@dataclass(slots=True)
class SiteView:
    """One submodule. Shapes are those of the first call, batch first; empty where nothing flowed."""

    site: str
    kind: str
    num_parameters: int  # of the module with all below it, each tensor once
    num_trainable: int
    calls: int = 0  # in one forward of the model
    input: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    dtype: str = ""
    output_kind: str = ""  # Tensor, tuple, BaseModelOutput ...
    blueprints: list[str] = field(default_factory=list)
    same_as: str = ""  # the other name of this module

    @property
    def fit(self) -> bool:
        """Whether some seed can join here."""
        return bool(self.blueprints)


def survey(
    model: nn.Module,
    inputs: tuple[Sequence[Any], Mapping[str, Any]] | None = None,
    blueprints: Mapping[str, Blueprint] = BLUEPRINTS,
) -> list[SiteView]:
    """Every submodule that is called, in the model's order.

    With `inputs`, (args, kwargs) of the model, one forward in eval mode without gradients shows shapes and fits; modes,
    generators and hooks are as before afterwards. Raises SettingError where the model can't take the inputs.
    """
    host, views, first = undistributed(model), dict[str, SiteView](), dict[int, str]()
    for name, module in host.named_modules(remove_duplicate=False):
        if name and is_called(module):
            site = bare_name(name)
            other = first.setdefault(id(module), site)
            views[site] = _still(site, module, other if other != site else "")
    if inputs is not None:
        _watch(host, {site: view for site, view in views.items() if not view.same_as}, inputs, blueprints)
    return list(views.values())


def example(text: str) -> Tensor:
    """A tensor of this shape and dtype, as 2,3,32,32 or 2,16:int64; raises SettingError on anything else."""
    shape, _, kind = text.partition(":")
    dtype = getattr(torch, kind or "float32", None)
    try:
        sizes = [int(size) for size in shape.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1 or not isinstance(dtype, torch.dtype):
        raise SettingError("--input", text, "sizes and a dtype of torch, as 2,3,32,32 or 2,16:int64")
    # Zeros are a valid index and a valid class; a fixed ramp shows what zeros would hide.
    return (
        torch.linspace(-1, 1, torch.Size(sizes).numel()).reshape(sizes).to(dtype)
        if dtype.is_floating_point
        else (torch.zeros(sizes, dtype=dtype))
    )


def as_inputs(given: object) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """(args, kwargs) of a model, of what a factory returns beside it: one value, a tuple or list, or a mapping."""
    if isinstance(given, Mapping):
        return (), given
    return (given if isinstance(given, tuple | list) else (given,)), {}


def _still(site: str, module: nn.Module, same_as: str) -> SiteView:
    parameters = list(module.parameters())
    trainable = sum(p.numel() for p in parameters if p.requires_grad)
    return SiteView(site, type(module).__name__, sum(p.numel() for p in parameters), trainable, same_as=same_as)


def _watch(
    host: nn.Module,
    views: Mapping[str, SiteView],
    inputs: tuple[Sequence[Any], Mapping[str, Any]],
    blueprints: Mapping[str, Blueprint],
) -> None:
    args, kwargs = inputs
    modules: dict[str, nn.Module] = {bare_name(name): module for name, module in host.named_modules()}
    handles = [
        modules[site].register_forward_hook(partial(_note, view, blueprints), with_kwargs=True)
        for site, view in views.items()
    ]
    try:
        with undisturbed(host):
            host(*args, **kwargs)
    except CALL_ERRORS as error:
        met = " and ".join(as_option(each) for each in (*args, *kwargs.values()) if isinstance(each, Tensor))
        expected = f"SHAPE:DTYPE of what the model takes ({type(error).__name__}: {error})"
        raise SettingError("example inputs", met, expected) from error
    finally:
        for handle in handles:
            handle.remove()


def as_option(tensor: Tensor) -> str:
    """2,5,7:float32, as `--input` takes it."""
    return f"{','.join(map(str, tensor.shape))}:{str(tensor.dtype).removeprefix('torch.')}"


def _note(
    view: SiteView,
    blueprints: Mapping[str, Blueprint],
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    output: Any,
) -> None:
    view.calls += 1
    if view.calls > 1:
        return
    view.output_kind = "Tensor" if isinstance(output, Tensor) else type(output).__name__
    made, given = joinable(output), joinable((*args, *kwargs.values()))
    if made is None:
        return
    h = made[1]
    x = h if given is None else given[1]
    view.input, view.output, view.dtype = tuple(x.shape), tuple(h.shape), str(h.dtype).removeprefix("torch.")
    view.blueprints = fitting(module, view.input, view.output, blueprints)
