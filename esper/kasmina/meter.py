"""What a seed is measured by, kept on the device and read at flush points only."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from esper.kasmina.isolation import TINY, norm, sample_norms


class Ring:
    """The last `size` scalars, on the device. Adding one never waits for the device."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._values = torch.zeros(size, dtype=torch.float64, device=device)
        self._size, self.total = size, 0

    @property
    def device(self) -> torch.device:
        return self._values.device

    def add(self, value: Tensor) -> None:
        self._values[self.total % self._size].copy_(value.detach() if value.requires_grad else value)
        self.total += 1

    def window(self) -> Tensor | None:
        """The values held once the ring is full; None before."""
        return self._values if self.total >= len(self._values) else None


class Meter:
    """Accumulators of one seed: fit, size, gradient ratio, strikes, drift. Judges nothing."""

    def __init__(self, window: int, device: torch.device) -> None:
        self.window, self.device = window, device
        self.fits, self.sizes, self.ratios = (Ring(window, device) for _ in range(3))
        self.first_fits = self._zero()
        self._fit, self._num_fits = self._zero(), self._zero()
        self.strikes = self._zero()  # forwards in which the seed was gated away
        self.num_non_finite = self._zero()  # samples
        self.gradient_norm = self._zero()
        self.drift, self.num_batches, self.num_shadowed, self.num_mismatches = self._zero(), 0, 0, 0
        self._open = False

    def _zero(self) -> Tensor:
        return torch.zeros((), dtype=torch.float64, device=self.device)

    def note_forward(self, h: Tensor, delta: Tensor, finite: Tensor, small: Tensor) -> None:
        """A strike is a forward with any value that is not finite, or with most samples out of size."""
        lost = ~finite & torch.isfinite(sample_norms(h))  # a host that is not finite itself is not the seed's doing
        self.num_non_finite += lost.sum()
        self.strikes += lost.any() | ((~small).double().mean() > 0.5)
        self.sizes.add(norm(delta) / norm(h).clamp_min(TINY))

    def note_fit(self, fit: Tensor, host_finite: Tensor) -> None:
        """Backward passes of one step are averaged; those in which the host's own gradient overflowed are left out."""
        self._fit += torch.where(host_finite, fit, torch.zeros_like(fit))
        self._num_fits += host_finite
        self._open = True

    def note_blend(self, h: Tensor, y: Tensor, *, shadowing: bool) -> None:
        drift = (norm(y) / norm(h).clamp_min(TINY) - 1.0).abs().double()
        torch.maximum(self.drift, drift, out=self.drift)
        self.num_batches += 1
        self.num_shadowed += shadowing

    def close_step(self, host_norm: Tensor, gradients: Sequence[Tensor]) -> None:
        """Once per optimizer step, after the seeds' gradients were averaged."""
        if gradients:
            self.gradient_norm = norm_of(gradients).double()
            self.ratios.add(self.gradient_norm / host_norm.clamp_min(TINY))
        if self._open:
            mean = self._fit / self._num_fits.clamp_min(1.0)
            if self.fits.total < self.window:
                self.first_fits += mean
            self.fits.add(mean)
            self._fit, self._num_fits, self._open = self._zero(), self._zero(), False

    def start_blending(self) -> None:
        """Drift is measured from here on."""
        self.drift, self.num_batches, self.num_shadowed, self.num_mismatches = self._zero(), 0, 0, 0


def norm_of(gradients: Sequence[Tensor]) -> Tensor:
    """L2 norm over all of them, without waiting for the device."""
    return norm(torch.stack([each.float() for each in torch._foreach_norm(list(gradients))]))
