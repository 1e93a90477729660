"""Copies of tensors, in buffers that are used again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

Shape = tuple[torch.Size, torch.dtype, torch.device, torch.layout]  # momentum of sparse gradients is sparse


class Bank:
    """Copies tensors, into buffers of copies that were given up where their shapes allow."""

    def __init__(self) -> None:
        self._free: dict[Shape, list[torch.Tensor]] = {}

    def keep(self, live: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        kept = [self._buffer(tensor) for tensor in live]
        copy_all(kept, live)
        return kept

    def give_up(self, kept: Iterable[torch.Tensor]) -> None:
        """Offer these buffers to the next copy; what the last offer left over is let go."""
        self._free = {}
        for tensor in kept:
            self._free.setdefault(_shape(tensor), []).append(tensor)

    def _buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        free = self._free.get(_shape(tensor))
        return free.pop() if free else torch.empty_like(tensor, requires_grad=False)


@torch.no_grad()
def copy_all(into: Sequence[torch.Tensor], source: Sequence[torch.Tensor]) -> None:
    """Copy pairwise, in as few launches as torch needs."""
    if into:
        torch._foreach_copy_(list(into), list(source))


def _shape(tensor: torch.Tensor) -> Shape:
    return tensor.shape, tensor.dtype, tensor.device, tensor.layout
