"""One flat all-reduce of all seeds' gradients, over our own process group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import torch
import torch.distributed as dist

from esper.errors import TrainingError
from esper.tolaria.missing_ranks import absent


class Trainee(Protocol):
    """A seed, as far as its optimizer is concerned."""

    @property
    def seed_id(self) -> str: ...

    def trainable(self) -> list[tuple[str, torch.nn.Parameter]]: ...


def parameters_of(seeds: Mapping[str, Trainee]) -> list[torch.nn.Parameter]:
    return [parameter for seed in seeds.values() for _, parameter in seed.trainable()]


class SeedReducer:
    """Means over the ranks of a process group; without a group every mean is the value itself."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group, self._num_sums = group, 0
        self.world_size = 1 if group is None else group.size()

    def reduce(self, seeds: Mapping[str, Trainee]) -> None:
        """Replace each seed's gradients by their mean over all ranks, as DDP does.

        Every rank must call this with the same seeds. The buffer is laid out by (seed id, parameter name), then one
        flag per seed that says whether any rank had a gradient for it; a rank without one contributes zeros. A seed
        for which no rank had any keeps none.
        """
        if self._group is None:
            return
        layout = [(seed_id, _in_order(seeds[seed_id])) for seed_id in sorted(seeds)]
        if not any(parameters for _, parameters in layout):
            return
        flat = _flatten(layout)
        self._sum(flat)
        _unflatten(flat, layout, self.world_size)

    def mean(self, tensor: torch.Tensor) -> torch.Tensor:
        """The mean over ranks, in float64 and in the shape given; for evidence, not for gradients."""
        value = tensor.detach().to(torch.float64)
        if self._group is None:
            return value
        value = value.clone()
        self._sum(value)
        return value / self.world_size

    def _sum(self, flat: torch.Tensor) -> None:
        assert self._group is not None  # there are others
        self._num_sums += 1
        try:
            dist.all_reduce(flat, group=self._group)
        except RuntimeError as error:
            whom = absent(self._group, f"sum-{self._num_sums}")
            raise TrainingError(
                f"rank {self._group.rank()} could not reduce {flat.numel()} values with {whom}; every rank runs the "
                f"same backward passes and steps of its optimizer until all have ended: {error}"
            ) from error


Layout = list[tuple[str, list[torch.nn.Parameter]]]


def _in_order(seed: Trainee) -> list[torch.nn.Parameter]:
    return [parameter for _, parameter in sorted(seed.trainable(), key=lambda pair: pair[0])]


def _flatten(layout: Layout) -> torch.Tensor:
    everything = [parameter for _, parameters in layout for parameter in parameters]
    dtype = _common_dtype(parameter.dtype for parameter in everything)
    device = everything[0].device
    pieces = [_gradient(parameter).reshape(-1).to(device, dtype) for parameter in everything]
    flags = [float(any(parameter.grad is not None for parameter in parameters)) for _, parameters in layout]
    return torch.cat([*pieces, torch.tensor(flags, dtype=dtype, device=device)])


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _common_dtype(dtypes: Iterable[torch.dtype]) -> torch.dtype:
    common = torch.float32  # sums of halves over many ranks lose more than they save
    for dtype in dtypes:
        common = torch.promote_types(common, dtype)
    return common


def _unflatten(flat: torch.Tensor, layout: Layout, world_size: int) -> None:
    flags = flat[flat.numel() - len(layout) :].tolist()
    everything = [parameter for _, parameters in layout for parameter in parameters]
    sizes = [parameter.numel() for parameter in everything]
    pieces = iter((flat[: sum(sizes)] / world_size).split(sizes))  # type: ignore[no-untyped-call]
    for (_, parameters), flag in zip(layout, flags, strict=True):
        for parameter in parameters:
            piece = next(pieces)
            if flag:
                parameter.grad = piece.to(parameter.device, parameter.dtype).view(parameter.shape)
