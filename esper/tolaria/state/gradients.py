"""A digest of a part of the gradients of one step that all ranks know: evidence of who reduces otherwise than most."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from esper.kernels.split import is_split
from esper.tolaria.state.digest import parameter_digest

PARTS = 16
"""A round looks at one sixteenth of each tensor, the next round at the next."""
COPIED_BYTES = 1 << 20
"""A sample of no more waits as a copy for the vote that tells it: that step takes long anyway, this one need not."""


class GradientSample:
    """Taken after the optimizer step before which a commit took effect, the same on every rank; told with votes."""

    def __init__(self) -> None:
        self.step, self._digest = 0, b""
        self._copied: list[tuple[str, torch.Tensor]] = []  # the newest sample, where its digest is yet to be made
        self.wanted = 0  # the step to be sampled
        self._round = 0

    def ask(self, round: int, step: int) -> None:
        """Have the gradients of this step sampled, by the number of the round that takes effect before it."""
        self._round, self.wanted = round, step

    @property
    def digest(self) -> bytes:
        """Of the newest sample; empty before the first."""
        if self._copied:
            self._digest, self._copied = parameter_digest(self._copied), []
        return self._digest

    def take(self, parameters: Iterable[torch.Tensor], step: int) -> None:
        """Sample, if this is the step; to be called once its gradients are reduced, and before they are cleared."""
        if step != self.wanted:
            return
        gradients = [grad for each in parameters if (grad := each.grad) is not None and not is_split(grad)]
        dense = [each for gradient in gradients for each in laid_out(gradient)]
        parts = [(f"{number}", part(each, self._round + number)) for number, each in enumerate(dense)]
        self.step, self._copied = step, []
        if 0 < sum(each.numel() * each.element_size() for _, each in parts) <= COPIED_BYTES:
            self._copied = [(name, each.clone()) for name, each in parts]
        else:
            self._digest = parameter_digest(parts)


def laid_out(gradient: torch.Tensor) -> list[torch.Tensor]:
    """What its elements lie in: itself, or of a sparse one, as of an Embedding's, rows in order and their numbers."""
    if not gradient.is_sparse:
        return [gradient]
    rows = gradient.coalesce()
    return [rows.values(), rows.indices()]


def part(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """One of sixteen stretches of the elements, flat; of a small tensor all of it."""
    flat = tensor.detach().reshape(-1)
    size = -(-flat.numel() // PARTS)
    return flat if flat.numel() < PARTS else flat[size * (number % PARTS) : size * (number % PARTS + 1)]
