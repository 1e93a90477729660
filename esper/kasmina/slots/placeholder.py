"""A place for a seed that a network names itself, where it has no module of its own to graft onto."""

from __future__ import annotations

from torch import Tensor, nn

from esper.errors import SettingError


class GradientIsolatedSeed(nn.Module):
    """The identity, for as long as no seed lives there. Name it among the `sites` of attach() to let one.

    It holds no parameter and no state of its own, so that it changes neither gradients nor state_dict; the seed and
    its isolation are the slot's, as at any other site.
    """

    def __init__(self, chunk_size: int, seed_id: str) -> None:
        """`chunk_size` divides the number of features, which come last; `seed_id` is the name in errors and repr."""
        if chunk_size < 1:
            raise SettingError("chunk_size", chunk_size, "a number of at least 1")
        super().__init__()
        self.chunk_size, self.seed_id = chunk_size, seed_id

    def forward(self, host_activations: Tensor) -> Tensor:
        """`host_activations` itself, [..., features]. Raises SettingError where the chunks don't fit."""
        if host_activations.shape[-1] % self.chunk_size:
            expected = f"a multiple of chunk_size, {self.chunk_size}"
            raise SettingError(f"features at {self.seed_id}", host_activations.shape[-1], expected)
        return host_activations

    def extra_repr(self) -> str:
        return f"chunk_size={self.chunk_size}, seed_id={self.seed_id!r}"
