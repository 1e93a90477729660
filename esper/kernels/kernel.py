"""A seed's module made ready for one site, and how it is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn


class KernelId(NamedTuple):
    """What to build, and for which germination of a site; all ranks that build it get the same bits."""

    site: str
    blueprint_id: str
    parameters: tuple[tuple[str, float], ...]  # resolved, by name
    generation: int

    @classmethod
    def of(cls, site: str, blueprint_id: str, parameters: Mapping[str, float], generation: int) -> KernelId:
        return cls(site, blueprint_id, tuple(sorted(parameters.items())), generation)


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A module on its site's device, with what was found out when it was built; no module where that failed."""

    module: nn.Module | None
    findings: object = None
    made_for: tuple[object, ...] = ()  # code, shapes and dtype: where one of them is another by now, it is of no use

    def get_memory_size(self) -> int:
        """Bytes of parameters and buffers."""
        tensors = () if self.module is None else (*self.module.parameters(), *self.module.buffers())
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
