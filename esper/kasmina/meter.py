"""What a seed is measured by, kept on the device and read at flush points only."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from esper.kasmina.isolation import FIT, FITS, TINY, norm

# The row of a call, summed over calls: relative fit, calls that have one, norm(delta) / norm(h), calls, calls in which
# the seed was gated away, samples that were not finite, calls while SHADOWING.
SIZE, CALLS, STRIKES, NON_FINITE, SHADOWED = range(FITS + 1, FITS + 6)
NUM_FIGURES = SHADOWED + 1


class Ring:
    """The last `size` scalars, on the device. Adding one never waits for the device."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._values = torch.zeros(size, dtype=torch.float64, device=device)
        self._size, self.total = size, 0

    @property
    def device(self) -> torch.device:
        return self._values.device

    @property
    def values(self) -> Tensor:
        """All places, also those that were never written."""
        return self._values

    def add(self, value: Tensor) -> None:
        self._values[self.total % self._size].copy_(value.detach() if value.requires_grad else value)
        self.total += 1

    def window(self) -> Tensor | None:
        """The values held once the ring is full; None before."""
        return self._values if self.total >= len(self._values) else None

    def newest(self, num: int) -> Tensor | None:
        """The last `num` values, in no order; None where fewer were added, or are held."""
        if num > min(self.total, self._size):
            return None
        end = self.total % self._size
        return (
            self._values[end - num : end] if end >= num else torch.cat((self._values[:end], self._values[end - num :]))
        )


@dataclass(frozen=True, slots=True)
class LossLevel:
    """Mean of some losses and the square of its standard error, on the device. The losses are taken as independent."""

    mean: Tensor
    error: Tensor

    @staticmethod
    def of(losses: Tensor | None) -> LossLevel | None:
        if losses is None or len(losses) < 2:
            return None
        mean = losses.mean()
        return LossLevel(mean, losses.var() / len(losses))

    @staticmethod
    def newest(losses: Ring, num: int) -> LossLevel | None:
        return LossLevel.of(losses.newest(num))


class Meter:
    """Accumulators of one seed: fit, size, gradient ratio, strikes, drift. Judges nothing.

    A call is a forward of the site with a backward; a module used twice in a forward makes two. Fits, sizes and ratios
    are means over the calls of one optimizer step, so that the window counts steps; the rest is summed over calls.
    """

    def __init__(self, window: int, device: torch.device) -> None:
        self.window, self.device = window, device
        self.fits, self.sizes, self.ratios = (Ring(window, device) for _ in range(3))
        self.first_fits, self.gradient_norm, self.drift = self._zero(), self._zero(), self._zero()
        self.num_mismatches = 0
        # Autograd sums up the figures of the calls in their gradients: one for TRAINING, one for the blended stages.
        self.fitting, self.blending = self._row().requires_grad_(), self._row().requires_grad_()
        self._totals = self._row()
        self._constants = self._zero(), self._zero() + 1.0

    def _zero(self) -> Tensor:
        return torch.zeros((), dtype=torch.float64, device=self.device)

    def _row(self) -> Tensor:
        return torch.zeros(NUM_FIGURES, dtype=torch.float64, device=self.device)

    @property
    def strikes(self) -> Tensor:
        """Calls in which the seed was gated away."""
        return self._total(STRIKES)

    @property
    def num_non_finite(self) -> Tensor:
        """Samples."""
        return self._total(NON_FINITE)

    @property
    def num_batches(self) -> Tensor:
        """Calls since blending began."""
        return self._total(CALLS)

    @property
    def num_shadowed(self) -> Tensor:
        return self._total(SHADOWED)

    def row(self, size: Tensor, strike: Tensor, num_lost: Tensor, *, shadowing: bool) -> Tensor:
        """The figures of one call, to become the gradient of its sink. A strike is a call with any value that is not
        finite, or with most samples out of size."""
        none, one = self._constants
        found = [each.double() for each in (size, strike, num_lost)]  # stacking mixed dtypes takes 3 us more
        return torch.stack([none, none, found[0], one, *found[1:], one if shadowing else none])

    def note_drift(self, drift: Tensor) -> None:
        """A maximum: a call that is run again changes nothing."""
        torch.maximum(self.drift, drift.double(), out=self.drift)

    def close_step(self, host_norm: Tensor, gradient_norm: Tensor | None) -> None:
        """Once per optimizer step, after the seeds' gradients were averaged; None where the seed has none."""
        if gradient_norm is not None:
            self.gradient_norm = gradient_norm
            self.ratios.add(self.gradient_norm / host_norm.clamp_min(TINY))
        fitted = self._taken(self.fitting)
        if fitted is not None:
            self._note_fit(fitted[FIT] / fitted[FITS].clamp_min(1.0))
        self._taken(self.blending)

    def _note_fit(self, mean: Tensor) -> None:
        """Of one step; backward passes in which the host's own gradient overflowed were left out."""
        if self.fits.total < self.window:
            self.first_fits += mean
        self.fits.add(mean)

    def _taken(self, sink: Tensor) -> Tensor | None:
        """What the calls of this step have left in the sink; None where there was none."""
        row, sink.grad = sink.grad, None
        if row is not None:
            self._totals += row
            self.sizes.add(row[SIZE] / row[CALLS])
        return row

    def _total(self, place: int) -> Tensor:
        rows = [self._totals, *(sink.grad for sink in (self.fitting, self.blending) if sink.grad is not None)]
        return torch.stack([row[place] for row in rows]).sum()

    def _forget(self, *places: int) -> None:
        for row in (self._totals, self.fitting.grad, self.blending.grad):
            if row is not None:
                row[list(places)] = 0.0

    def forgive(self) -> None:
        """No strikes so far."""
        self._forget(STRIKES, NON_FINITE)

    def start_blending(self) -> None:
        """Drift is measured from here on."""
        self.drift, self.num_mismatches = self._zero(), 0
        self._forget(CALLS, SHADOWED)


class GraphCounts:
    """How many graphs the process had compiled, looked up by step; the newest `num` notes are kept."""

    def __init__(self, num: int) -> None:
        self._notes: deque[tuple[int, int]] = deque(maxlen=num)

    def note(self, step: int, count: int) -> None:
        self._notes.append((step, count))

    def before(self, step: int) -> int:
        """At the last note up to `step`, or at the oldest one; 0 without any."""
        return max((count for at, count in self._notes if at <= step), default=self._notes[0][1] if self._notes else 0)


def norm_of(gradients: Sequence[Tensor]) -> Tensor:
    """L2 norm over all of them, without waiting for the device."""
    return norm(torch.stack([each.float() for each in torch._foreach_norm(list(gradients))]))
