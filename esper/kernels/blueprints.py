"""The blueprints that a worker can germinate, with their parameters and digests."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from esper.errors import RefusedError
from esper.kernels import lora, mlp, residual
from esper.leyline import contracts as pb

Builder = Callable[[nn.Module, torch.Size, torch.Size, Mapping[str, float]], nn.Module]


@dataclass(frozen=True, slots=True)
class BlueprintRange:
    """One parameter of a blueprint."""

    name: str
    default: float
    minimum: float
    maximum: float
    integer: bool = True

    def checked(self, value: float) -> float:
        whole = not self.integer or float(value).is_integer()
        if not (self.minimum <= value <= self.maximum and whole):
            kind = "an integer" if self.integer else "a number"
            detail = f"parameter {self.name} is {value:g}; expected {kind} in [{self.minimum:g}, {self.maximum:g}]"
            raise RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, detail)
        return value


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A recipe for a seed's module: forward(x, h) -> delta in h's shape, zero when new, drawing no random number."""

    blueprint_id: str
    parameters: tuple[BlueprintRange, ...]
    builder: Builder
    code: str  # source that the digest covers
    tier: pb.BlueprintTier = pb.BlueprintTier.BLUEPRINT_TIER_SAFE

    def resolve(self, given: Mapping[str, float]) -> dict[str, float]:
        """Defaults overlaid with `given`; raises RefusedError on an unknown name or a value out of range."""
        table = {parameter.name: parameter for parameter in self.parameters}
        for name in given:
            if name not in table:
                detail = f"blueprint {self.blueprint_id} has no parameter {name!r}; it has {', '.join(table) or 'none'}"
                raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_PARAMETER, detail)
        return {name: row.checked(float(given.get(name, row.default))) for name, row in table.items()}

    def build(
        self, module: nn.Module, input_shape: torch.Size, output_shape: torch.Size, parameters: Mapping[str, float]
    ) -> nn.Module:
        return self.builder(module, input_shape, output_shape, self.resolve(parameters))

    @property
    def digest(self) -> str:
        """sha256 of the source code and the parameter table, hex."""
        text = "\0".join((self.blueprint_id, self.code, repr(self.parameters)))
        return hashlib.sha256(text.encode()).hexdigest()

    def manifest(self) -> pb.KernelManifest:
        return pb.KernelManifest(
            version=1,
            blueprint_id=self.blueprint_id,
            digest=self.digest,
            tier=self.tier,
            parameters=[
                pb.BlueprintParameter(
                    name=row.name,
                    default_value=row.default,
                    minimum=row.minimum,
                    maximum=row.maximum,
                    integer=row.integer,
                )
                for row in self.parameters
            ],
        )


_SHARED = inspect.getsource(residual)

BLUEPRINTS: Mapping[str, Blueprint] = {
    "lora": Blueprint(
        "lora", (BlueprintRange("rank", 4, 1, 1024),), lora.build_lora, _SHARED + inspect.getsource(lora)
    ),
    "mlp": Blueprint("mlp", (BlueprintRange("hidden", 32, 1, 65536),), mlp.build_mlp, _SHARED + inspect.getsource(mlp)),
}
