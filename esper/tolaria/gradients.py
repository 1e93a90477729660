"""A digest of a part of the gradients of one step that all ranks know: evidence of who reduces otherwise than most."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from esper.tolaria.digest import parameter_digest

PARTS = 16
"""A round looks at one sixteenth of each tensor, the next round at the next."""


class GradientSample:
    """Taken after the optimizer step before which a commit took effect, the same on every rank; told with votes."""

    def __init__(self) -> None:
        self.step, self.digest = 0, b""
        self.wanted = 0  # the step to be sampled
        self._round = 0

    def ask(self, round: int, step: int) -> None:
        """Have the gradients of this step sampled, by the number of the round that takes effect before it."""
        self._round, self.wanted = round, step

    def take(self, parameters: Iterable[torch.Tensor], step: int) -> None:
        """Sample, if this is the step; to be called once its gradients are reduced, and before they are cleared."""
        if step != self.wanted:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        parts = [(f"{number}", part(each, self._round + number)) for number, each in enumerate(gradients)]
        self.step, self.digest = step, parameter_digest(parts)


def part(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """One of sixteen stretches of the elements, flat; of a small tensor all of it."""
    flat = tensor.detach().reshape(-1)
    size = -(-flat.numel() // PARTS)
    return flat if flat.numel() < PARTS else flat[size * (number % PARTS) : size * (number % PARTS + 1)]
