"""The blueprints that a worker can germinate, with their parameters and digests."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType

import torch
from torch import nn

from esper.errors import RefusedError, listed, near
from esper.kernels import attention, conv, folding, layout, lora, mlp, noop, norm, residual, squeeze
from esper.kernels.misfits import Misfit, fits_anywhere, needs_channels, needs_places, needs_tokens
from esper.kernels.schema import BlueprintRange as BlueprintRange, resolved
from esper.leyline import contracts as pb

Builder = Callable[[nn.Module, torch.Size, torch.Size, Mapping[str, float]], nn.Module]


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A recipe for a seed's module: forward(x, h) -> delta in h's shape, zero when new, drawing no random number.

    `code` is what the digest covers besides the parameters: source text, or whatever else changes with the code.
    `misfit` says why the blueprint does not fit a site, or "". Raise `schema_version` when a parameter changes meaning.
    """

    blueprint_id: str
    parameters: tuple[BlueprintRange, ...]
    builder: Builder
    code: str
    tier: pb.BlueprintTier = pb.BlueprintTier.BLUEPRINT_TIER_SAFE
    misfit: Misfit = fits_anywhere
    schema_version: int = 1
    summary: str = ""
    digest: str = field(init=False)  # sha256 over id, schema version, code and parameter table, hex

    def __post_init__(self) -> None:
        text = "\0".join((self.blueprint_id, str(self.schema_version), self.code, repr(self.parameters)))
        object.__setattr__(self, "digest", hashlib.sha256(text.encode()).hexdigest())

    def resolve(self, given: Mapping[str, float]) -> dict[str, float]:
        """Defaults overlaid with `given`; raises RefusedError on an unknown name or a value out of range."""
        return resolved(self.blueprint_id, self.parameters, given)

    def fits(
        self,
        module: nn.Module,
        input_shape: Sequence[int],
        output_shape: Sequence[int],
        given: Mapping[str, float] | None = None,
    ) -> str | None:
        """None, or a sentence that says why it does not, with both shapes; RefusedError as of resolve()."""
        reason = self.misfit(module, input_shape, output_shape, self.resolve(given or {}))
        if not reason:
            return None
        shapes = f"input {list(input_shape)}, output {list(output_shape)}"
        return f"blueprint {self.blueprint_id} does not fit a {type(module).__name__} ({shapes}): {reason}"

    def build(
        self, module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
    ) -> nn.Module:
        return self.builder(module, input_shape, output_shape, self.resolve(parameters))

    def manifest(self) -> pb.KernelManifest:
        return pb.KernelManifest(
            version=1,
            blueprint_id=self.blueprint_id,
            digest=self.digest,
            tier=self.tier,
            parameters=[row.as_message() for row in self.parameters],
            schema_version=self.schema_version,
        )


def find(blueprints: Mapping[str, Blueprint], blueprint_id: str) -> Blueprint:
    """The blueprint of this id; RefusedError that names the near ones where there is none."""
    if blueprint_id not in blueprints:
        alike = near(blueprint_id, blueprints)
        detail = f"no blueprint is called {blueprint_id!r}{alike}; blueprints: {listed(blueprints)}"
        raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_BLUEPRINT, detail)
    return blueprints[blueprint_id]


def _own(blueprint_id: str, builder: Builder, misfit: Misfit, summary: str, *parameters: BlueprintRange) -> Blueprint:
    """One of this package: its digest covers the file that it is written in and those that all of them share."""
    home = inspect.getmodule(builder)
    assert home is not None  # builders are functions of this package
    code = "".join(map(inspect.getsource, (*_SHARED, home)))
    return Blueprint(blueprint_id, parameters, builder, code, misfit=misfit, summary=summary)


_SHARED: tuple[ModuleType, ...] = (layout, residual, folding)
_OWN = (
    _own("noop", noop.build_noop, fits_anywhere, "adds nothing; not trainable"),
    _own("norm", norm.build_norm, needs_channels, "scales and shifts each channel"),
    _own(
        "lora",
        lora.build_lora,
        needs_channels,
        "low-rank linear map",
        BlueprintRange("rank", 4, 1, 64, meaning="inner width"),
    ),
    _own(
        "mlp",
        mlp.build_mlp,
        needs_channels,
        "bottleneck with one GELU layer",
        BlueprintRange("hidden", 32, 1, 65536, meaning="inner width"),
    ),
    _own(
        "depthwise",
        conv.build_depthwise,
        needs_places,
        "one filter per channel",
        BlueprintRange("radius", 1, 1, 7, meaning="places on each side; the kernel is 2 radius + 1 wide"),
    ),
    _own("conv1x1", conv.build_conv1x1, needs_places, "linear map of the channels"),
    _own("conv3x3", conv.build_conv3x3, needs_places, "convolution, 3 places wide in each dimension"),
    _own(
        "se",
        squeeze.build_se,
        needs_places,
        "squeeze-and-excitation of channels",
        BlueprintRange("reduction", 4, 1, 64, meaning="channels over inner width"),
    ),
    _own(
        "attention",
        attention.build_attention,
        needs_tokens,
        "self-attention over tokens",
        BlueprintRange("heads", 4, 1, 64, meaning="they divide the features"),
        BlueprintRange("causal", 1, 0, 1, meaning="1: no token sees a later one"),
    ),
)

BLUEPRINTS: Mapping[str, Blueprint] = {each.blueprint_id: each for each in _OWN}


def fitting(
    module: nn.Module,
    input_shape: Sequence[int],
    output_shape: Sequence[int],
    blueprints: Mapping[str, Blueprint] = BLUEPRINTS,
) -> list[str]:
    """Ids of the blueprints that fit this site with their default parameters; shapes as seen, batch first."""
    return [name for name, each in blueprints.items() if each.fits(module, input_shape, output_shape) is None]
